"""Limits on concurrent sessions, and stopping of sessions that run.

A slot for a session on a CLI is a lock on a file, shared by all processes of the fleet, so it is free again
when its holder is killed. The number of slots is what the machine's memory holds: a CLI takes some 300 MB.
"""

from __future__ import annotations

import asyncio
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
SHARE = 0.5  # of the machine's memory
POLL_S = 0.05
CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
T = TypeVar("T")


def slots_for_memory(cgroup_limit: Path = CGROUP_LIMIT) -> int:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError, ValueError):  # a container may have less
        memory = min(memory, int(cgroup_limit.read_text()))
    return max(1, int(memory * SHARE / MEMORY_OF_ONE))


class FleetSlots:
    def __init__(self, home: Path, number: int | None = None, folder: str = FOLDER) -> None:
        self._folder = home / folder
        self.number = number or slots_for_memory()

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[int]:
        """Wait for a slot and hold it during the block."""
        slot, descriptor = await self._wait()
        try:
            yield slot
        finally:
            os.close(descriptor)

    async def _wait(self) -> tuple[int, int]:
        while True:  # a lock that another process releases is not announced
            if (held := self.try_take()) is not None:
                return held
            await asyncio.sleep(POLL_S)

    def try_take(self) -> tuple[int, int] | None:
        """Return a slot and the descriptor that holds it until closed; None if all are taken."""
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


class SessionStopped(Exception):
    """The session was stopped on request; its caller was not cancelled."""


class RunningSessions:
    """Sessions from their planning to the last write of their log."""

    def __init__(self) -> None:
        self._work: dict[UUID, asyncio.Future[Any]] = {}
        self._tasks: set[asyncio.Future[Any]] = set()  # they outlive a cancelled session
        self._stopping = asyncio.Event()

    def stop(self, session_id: UUID) -> bool:
        """Stop a session, also one that waits for its slot; False if there is none."""
        work = self._work.get(session_id)
        return work is not None and work.cancel(STOP)

    def stop_all(self) -> list[UUID]:
        return [session_id for session_id in list(self._work) if self.stop(session_id)]

    async def settle(self) -> None:
        """Wait for the tasks of cancelled sessions: ending a process, writing a log."""
        self._stopping.set()
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    async def stops_within(self, seconds: float) -> bool:
        """Wait so long; return whether the butler is stopping."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)
        return self._stopping.is_set()

    def track_task(self, work: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
        """Run it in a task that ``settle`` waits for, even if the caller is cancelled."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def stoppable(self, session_id: UUID, work: Coroutine[Any, Any, T]) -> T:
        """Return its result, or raise ``SessionStopped``."""
        task = self.track_task(work)
        with self._registered(session_id, task):
            try:
                await asyncio.wait({task})
            except asyncio.CancelledError:  # the caller ends, and the session with it
                task.cancel()
                raise
        if task.cancelled():
            raise SessionStopped
        return task.result()

    @contextmanager
    def uninterrupted(self, session_id: UUID) -> Iterator[asyncio.Future[None]]:
        """Defer a stop during the block; afterwards the future tells whether there was one."""
        stop: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with self._registered(session_id, stop):
            yield stop

    @contextmanager
    def _registered(self, session_id: UUID, work: asyncio.Future[Any]) -> Iterator[None]:
        self._work[session_id] = work
        try:
            yield
        finally:
            del self._work[session_id]
