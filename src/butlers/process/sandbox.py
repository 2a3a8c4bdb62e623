"""Run a script in namespaces of its own, where the system allows it.

The script sees only its own processes, so it can neither read another environment nor outlive its run,
however it detaches itself. Of our home it sees only the folder that it works in, so none of our keys.
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
# The shell stays as the namespace's first process, because that one ignores most signals. The kernel ends
# everything else when it exits.
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
exec 3>&2 2>/dev/null  # the shell would report how its child ended
(exec "$@" 2>&3 3>&-)
"""


def sandboxed(argv: tuple[str, ...], work: Path, scratch: Path, home: Path) -> tuple[str, ...]:
    """Return a command that runs this one in a sandbox; the same command where there is none."""
    unshare = sandbox_program()
    if unshare is None:
        return argv
    hidden = kept = ""
    if home.is_dir() and not any(path.is_relative_to(home) for path in _needed(argv, scratch)):
        hidden = str(home)
        kept = tempfile.mkdtemp(dir=scratch) if work.is_relative_to(home) else ""
    enter = (_SHELL, "-c", _ENTER, _SHELL, hidden, str(work), kept)
    return (*_outer(unshare), *enter, *_inner(unshare), *argv)


def _needed(argv: tuple[str, ...], scratch: Path) -> tuple[Path, ...]:
    """Return the paths that must stay visible: we may be installed in our own home."""
    program = Path(argv[0])
    return scratch, program, program.resolve(), Path(sys.prefix).resolve()


def _outer(unshare: str) -> tuple[str, ...]:
    """Enter the namespace that may mount, so the script does not run in it."""
    namespaces = ("--user", "--map-root-user", "--mount", "--pid", "--mount-proc")
    return (unshare, *namespaces, "--fork", "--kill-child", "--")


def _inner(unshare: str) -> tuple[str, ...]:
    """Enter a namespace without capabilities: it cannot undo the mounts of the outer one."""
    user, group = os.getuid() or _NOBODY, os.getgid() or _NOBODY
    return (unshare, "--user", f"--map-user={user}", f"--map-group={group}", "--")


@lru_cache(maxsize=1)
def sandbox_program() -> str | None:
    """Return the path of ``unshare`` if this system lets it make a sandbox."""
    unshare = shutil.which("unshare")
    if unshare is None:
        return None
    try:
        subprocess.run(
            [*_outer(unshare), *_inner(unshare), "true"],
            check=True,
            capture_output=True,
            timeout=_PROBE_S,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return unshare
