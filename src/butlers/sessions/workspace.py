"""Where sessions live: each has a private folder for its HOME and TMPDIR, which is gone when it ends.

Folders that a killed daemon left behind are cleared at its next start, and with them whatever process still
lives in one: it can be known by its HOME.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

import structlog

from butlers.config.files import make_private_folder
from butlers.runtimes.base import Workspace

log = structlog.get_logger()

FOLDER = "sessions"
_PROCESSES = Path("/proc")


class Workspaces:
    """The private folders of the sessions that one daemon of a butler runs.

    They lie in a folder that the daemon holds a lock on: one whose lock is free belongs to the dead.
    """

    def __init__(self, home: Path, butler: str, directory: Path) -> None:
        self._all = home / FOLDER / butler
        self._own = self._all / secrets.token_hex(8)
        self._directory = directory
        self._lock: int | None = None
        self._remover = ThreadPoolExecutor(1, thread_name_prefix="workspaces")

    def take(self) -> None:
        """Clear what dead daemons of this butler left, and begin a folder of our own."""
        for left in sorted(self._all.iterdir()) if self._all.is_dir() else ():
            if (lock := _try_lock(left)) is not None:
                _clear(left)
                os.close(lock)
        make_private_folder(self._own)
        self._lock = _try_lock(self._own)

    def release(self) -> None:
        self._remover.shutdown(cancel_futures=True)
        shutil.rmtree(self._own, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)

    @contextmanager
    def open(self, session_id: UUID) -> Iterator[Workspace]:
        private = self._own / str(session_id)
        make_private_folder(private)
        try:
            yield Workspace(self._directory, private)
        finally:
            self._remove(private)

    def _remove(self, private: Path) -> None:
        """Out of the way at once. Emptying it takes longer than a tool call, and everybody would wait."""
        gone = private.with_name(f"{private.name}.gone")
        with contextlib.suppress(FileNotFoundError):
            private.rename(gone)
            self._remover.submit(shutil.rmtree, gone, ignore_errors=True)


def _try_lock(folder: Path) -> int | None:
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:  # another daemon that starts has just cleared it
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _clear(folder: Path) -> None:
    for process in _living_in(folder):
        log.warning("process of a dead session ended", pid=process)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process, signal.SIGKILL)
    shutil.rmtree(folder, ignore_errors=True)


def _living_in(folder: Path) -> Iterator[int]:
    """The processes whose HOME is in this folder, where the system lets us look."""
    mark = f"HOME={folder}{os.sep}".encode()
    for entry in _PROCESSES.glob("[0-9]*"):
        with contextlib.suppress(OSError):
            environ = (entry / "environ").read_bytes()
            if any(variable.startswith(mark) for variable in environ.split(b"\0")):
                yield int(entry.name)
