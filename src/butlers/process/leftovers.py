"""Remove what a killed process left: folders whose lock is free, and the processes that use them."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import structlog

log = structlog.get_logger()

_PROCESSES = Path("/proc")
_MARK = ".butlers"  # a folder without it may belong to another program


@contextmanager
def temporary_folder(prefix: str) -> Iterator[Path]:
    """Yield a private folder and remove it afterwards. First remove those that killed processes left."""
    _sweep(prefix)
    folder = Path(tempfile.mkdtemp(prefix=prefix)).resolve()
    lock = try_lock(folder)
    try:
        # Mark it only when it is locked: from here on a free lock means a dead owner.
        (folder / _MARK).touch()
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def _sweep(prefix: str) -> None:
    for left in Path(tempfile.gettempdir()).resolve().glob(f"{prefix}*"):
        with contextlib.suppress(OSError):
            if left.lstat().st_uid == os.getuid() and (left / _MARK).is_file():
                clear_unlocked(left)


def clear_unlocked(folder: Path) -> None:
    """Remove a folder that no process holds, and kill the processes whose HOME is in it."""
    if (lock := try_lock(folder)) is not None:
        _clear(folder)
        os.close(lock)


def try_lock(folder: Path) -> int | None:
    """Lock the folder until the returned descriptor is closed; None if another process has it."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:  # another process has just removed it
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _clear(folder: Path) -> None:
    for process in _processes_in(folder):
        log.warning("process of a dead session ended", pid=process)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process, signal.SIGKILL)
    shutil.rmtree(folder, ignore_errors=True)


def _processes_in(folder: Path) -> Iterator[int]:
    """Yield the processes whose HOME is in this folder, as far as the system shows them."""
    mark = f"HOME={folder}{os.sep}".encode()
    for entry in _PROCESSES.glob("[0-9]*"):
        with contextlib.suppress(OSError):
            environ = (entry / "environ").read_bytes()
            if any(variable.startswith(mark) for variable in environ.split(b"\0")):
                yield int(entry.name)
