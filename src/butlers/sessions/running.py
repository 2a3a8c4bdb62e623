"""Sessions under way, from the first thought to the last line of their log, and how they are stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar
from uuid import UUID

from butlers.process.runner import STOP

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
