"""How many sessions on a CLI may run at once in the whole fleet, whichever processes its butlers live in.

A slot is a lock on a file, so that it is free again when its holder is killed. Their number is what the
machine's memory holds: a CLI takes some 300 MB.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from butlers.config.files import PRIVATE_FILE, make_private_folder

FOLDER = "run/slots"
MEMORY_OF_ONE = 300 * 2**20
SHARE = 0.5  # of the machine's memory: it has other things to do
POLL_S = 0.05
CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


def slots_for_memory(cgroup_limit: Path = CGROUP_LIMIT) -> int:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with contextlib.suppress(OSError, ValueError):  # a container may have less than its machine
        memory = min(memory, int(cgroup_limit.read_text()))
    return max(1, int(memory * SHARE / MEMORY_OF_ONE))


class FleetSlots:
    def __init__(self, home: Path, number: int | None = None, folder: str = FOLDER) -> None:
        self._folder = home / folder
        self.number = number or slots_for_memory()

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[int]:
        """Wait for a slot, and hold it."""
        slot, descriptor = await self._wait()
        try:
            yield slot
        finally:
            os.close(descriptor)

    async def _wait(self) -> tuple[int, int]:
        while True:  # nobody tells us when a process elsewhere lets a lock go
            if (held := self.try_take()) is not None:
                return held
            await asyncio.sleep(POLL_S)

    def try_take(self) -> tuple[int, int] | None:
        """A slot and the descriptor that holds it, until that is closed; None when all are taken."""
        make_private_folder(self._folder)
        for slot in range(self.number):
            path = self._folder / f"{slot}.lock"
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
            else:
                return slot, descriptor
        return None
