"""Protect the memory and the environment of a daemon from other processes of the same account."""

from __future__ import annotations

import ctypes
import os
import resource
from collections.abc import Mapping, MutableMapping
from pathlib import Path

PR_SET_DUMPABLE = 4
_ENV_START, _ENV_END = 47, 48  # fields of /proc/self/stat behind the name
# Variables that are no secrets and that libraries read at any time. All others are removed.
_KEPT = frozenset(
    {
        "COLUMNS",
        "HOME",
        "LANG",
        "LANGUAGE",
        "LOGNAME",
        "NO_COLOR",
        "PATH",
        "PWD",
        "SHELL",
        "SSL_CERT_DIR",
        "SSL_CERT_FILE",
        "TERM",
        "TMPDIR",
        "TZ",
        "USER",
        "BUTLERS_HOME",
        "BUTLERS_LOG",
        "BUTLERS_PORT_OFFSET",
    }
)
_KEPT_PREFIXES = ("LC_", "LD_", "PYTHON", "XDG_", "COV_")


def forbid_inspection() -> None:
    """Let no other process of this account read or trace this one, and write no core file."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    except (OSError, AttributeError):  # systems other than Linux
        return


def forget_environment(environ: MutableMapping[str, str]) -> None:
    """Remove every variable that may be a secret from this process, also where the kernel shows it.

    The settings were read before. A child process inherits only what is left.
    """
    removed = {name: value for name, value in environ.items() if not _is_kept(name)}
    for name in removed:
        del environ[name]
    _overwrite(removed)


def _is_kept(name: str) -> bool:
    return name in _KEPT or name.startswith(_KEPT_PREFIXES)


def _overwrite(removed: Mapping[str, str]) -> None:
    """Overwrite the values in the memory that /proc/PID/environ shows: it keeps the first environment."""
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        start, end = int(fields[_ENV_START]), int(fields[_ENV_END])
    except (OSError, ValueError, IndexError):
        return
    position = start
    for entry in ctypes.string_at(start, end - start).split(b"\0"):
        name, _, value = entry.partition(b"=")
        if value and os.fsdecode(name) in removed:
            ctypes.memset(position + len(name) + 1, 0, len(value))
        position += len(entry) + 1
