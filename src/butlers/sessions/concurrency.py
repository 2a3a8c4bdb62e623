"""x"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

from butlers.config.files import PRIVATE_FILE, make_private_folder
from butlers.process.runner import STOP

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


T = TypeVar("T")


class Stopped(Exception):
    """Somebody ended the session, and not whoever waits for it."""


class Running:
    def __init__(self) -> None:
        self._work: dict[UUID, asyncio.Future[Any]] = {}
        self._ending: set[asyncio.Future[Any]] = set()  # what goes on when its session is cut off
        self._over = asyncio.Event()

    def stop(self, session_id: UUID) -> bool:
        """End a session at once, one that waits for its turn too; False when there is none."""
        work = self._work.get(session_id)
        return work is not None and work.cancel(STOP)

    def stop_all(self) -> list[UUID]:
        return [session_id for session_id in list(self._work) if self.stop(session_id)]

    async def settle(self) -> None:
        """Wait for what sessions that were cut off still have to do: end a process, write a log."""
        self._over.set()
        while self._ending:
            await asyncio.wait(set(self._ending))

    async def is_ending(self, within_s: float) -> bool:
        """Whether the butler stops, now or so soon: then nothing more is waited for."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._over.wait(), within_s)
        return self._over.is_set()

    def see_to_its_end(self, work: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
        """In a task of its own: a caller that is cancelled for good could wait for nothing any more."""
        task = asyncio.ensure_future(work)
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        return task

    async def stoppable(self, session_id: UUID, work: Coroutine[Any, Any, T]) -> T:
        """What came of it, or ``Stopped``."""
        task = self.see_to_its_end(work)
        with self._known_as(session_id, task):
            try:
                await asyncio.wait({task})
            except asyncio.CancelledError:  # we are to end, and with us the session
                task.cancel()
                raise
        if task.cancelled():
            raise Stopped
        return task.result()

    @contextmanager
    def unbroken(self, session_id: UUID) -> Iterator[asyncio.Future[None]]:
        """For what must not be torn: a stop that comes meanwhile is found in the future afterwards."""
        stop: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with self._known_as(session_id, stop):
            yield stop

    @contextmanager
    def _known_as(self, session_id: UUID, work: asyncio.Future[Any]) -> Iterator[None]:
        self._work[session_id] = work
        try:
            yield
        finally:
            del self._work[session_id]
