"""What stands around a script where the system allows it: namespaces of its own.

In them it sees no process but its own, so it can neither read another one's environment nor outlive its run,
however it detaches itself; and of our home only the folder that it works in, so no key of ours.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from functools import lru_cache
from pathlib import Path

_NOBODY = 65534
_PROBE_S = 10
_SHELL = "/bin/sh"
# The first process stays: the one that the script is must not be the namespace's first, to which signals
# mean little. The kernel ends everything when the first one leaves.
_ENTER = """
home=$1 work=$2 kept=$3 path=$PATH; shift 3
PATH=/usr/sbin:/usr/bin:/sbin:/bin
if [ -n "$home" ]; then
    if [ -n "$kept" ]; then mount --rbind -- "$work" "$kept" || exit 126; fi
    mount -t tmpfs -o size=64k,mode=700 butlers "$home" || exit 126
    if [ -n "$kept" ]; then
        mkdir -p -- "$work" && mount --rbind -- "$kept" "$work" || exit 126
    fi
fi
cd -- "$work" || exit 126
PATH=$path
exec 3>&2 2>/dev/null  # a shell tells when its child was ended, and nobody asked
(exec "$@" 2>&3 3>&-)
"""


def around(argv: tuple[str, ...], work: Path, scratch: Path, home: Path) -> tuple[str, ...]:
    """The command that runs this one behind walls; the same command where there can be none."""
    unshare = standing()
    if unshare is None:
        return argv
    hidden = kept = ""
    if home.is_dir() and not any(path.is_relative_to(home) for path in _needed(argv, scratch)):
        hidden = str(home)
        kept = tempfile.mkdtemp(dir=scratch) if work.is_relative_to(home) else ""
    enter = (_SHELL, "-c", _ENTER, _SHELL, hidden, str(work), kept)
    return (*_first(unshare), *enter, *_second(unshare), *argv)


def _needed(argv: tuple[str, ...], scratch: Path) -> tuple[Path, ...]:
    """What must stay in sight: we may be installed in our own home."""
    program = Path(argv[0])
    return scratch, program, program.resolve(), Path(sys.prefix).resolve()


def _first(unshare: str) -> tuple[str, ...]:
    """May mount, which is why the script is not run in it."""
    namespaces = ("--user", "--map-root-user", "--mount", "--pid", "--mount-proc")
    return (unshare, *namespaces, "--fork", "--kill-child", "--")


def _second(unshare: str) -> tuple[str, ...]:
    """May nothing: what was mounted in the first one can not be taken away here."""
    user, group = os.getuid() or _NOBODY, os.getgid() or _NOBODY
    return (unshare, "--user", f"--map-user={user}", f"--map-group={group}", "--")


@lru_cache(maxsize=1)
def standing() -> str | None:
    """The program that makes the walls, if this system lets it."""
    unshare = shutil.which("unshare")
    if unshare is None:
        return None
    try:
        subprocess.run(
            [*_first(unshare), *_second(unshare), "true"],
            check=True,
            capture_output=True,
            timeout=_PROBE_S,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return unshare
