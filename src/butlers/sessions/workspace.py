"""Where sessions live: each has a private folder for its HOME and TMPDIR, which is gone when it ends.

Folders that a killed daemon left behind are cleared at its next start, and with them whatever process still
lives in one: it can be known by its HOME.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

from butlers.config.files import make_private_folder
from butlers.process.leftovers import clear, try_lock
from butlers.runtimes.base import Workspace

FOLDER = "sessions"


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
            if (lock := try_lock(left)) is not None:
                clear(left)
                os.close(lock)
        make_private_folder(self._own)
        self._lock = try_lock(self._own)

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
