"""File locks that the kernel drops when their holder dies, however it dies."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def open_lock(path: Path) -> int:
    """A descriptor to lock; never inherited by a child unless it is handed over by name."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


@contextmanager
def exclusive(path: Path) -> Iterator[int]:
    """Hold the lock alone for the length of the block, waiting for it first."""
    descriptor = open_lock(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        # Unlocked by name: a child that was given the descriptor must not keep it for us.
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def try_exclusive(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class Lease:
    """A share in the server: as long as somebody holds one, the server stays."""

    def __init__(self, path: Path) -> None:
        self._descriptor = open_lock(path)
        fcntl.flock(self._descriptor, fcntl.LOCK_SH)

    def end(self) -> bool:
        """Give the share back; true when it was the last. Only the start lock's holder may ask."""
        try:
            return try_exclusive(self._descriptor)
        finally:
            os.close(self._descriptor)
