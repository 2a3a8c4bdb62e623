"""Make the checkout importable in its virtual environment, without building anything.

An editable install needs a build backend from an index; a path file and a console script do not.
"""

import compileall
import os
import stat
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# The kernel cuts a long interpreter path off and splits one with a space; the shell does neither.
COMMAND = """#!/bin/sh
'''exec' "{python}" "$0" "$@"
' '''
import sys
try:
    from butlers.cli.main import main
    sys.exit(main())
except KeyboardInterrupt:  # pressed while the imports ran
    sys.exit(130)
"""


def main() -> None:
    site = Path(sysconfig.get_path("purelib"))
    (site / "butlers-checkout.pth").write_text(f"{ROOT / 'src'}\n")
    command = Path(sysconfig.get_path("scripts")) / "butlers"
    command.write_text(COMMAND.format(python=sys.executable))
    command.chmod(command.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    compileall.compile_dir(site, quiet=2, workers=os.cpu_count() or 1)
    compileall.compile_dir(ROOT / "src", quiet=2)


if __name__ == "__main__":
    main()
