"""Processes that are kept ready: as many as are asked for, while messages come.

There are never more than part of the memory holds, they are let go when nothing has come for a while, and
whenever one is not as it should be a cold start takes over.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import structlog

from butlers.runtimes.base import NotWarm, Warm
from butlers.sessions.slots import FleetSlots

log = structlog.get_logger()

FOLDER = "run/warm"
IDLE_S = 900.0  # without a message for so long, they are let go
SHARE = 2  # of the fleet's slots, one in so many may wait


def waiting_slots(home: Path, max_sessions: int | None) -> FleetSlots:
    """Places for processes that wait, in the whole fleet."""
    number = FleetSlots(home, max_sessions).number
    return FleetSlots(home, max(1, number // SHARE), FOLDER)


@dataclass(slots=True)
class Held:
    """One that waits: its process, and what has to be given back."""

    process: Warm
    stack: ExitStack

    async def close(self) -> None:
        try:
            await self.process.close()
        except Exception:  # it is over either way, and what it held is given back
            log.exception("a process that waited did not end well")
        finally:
            self.stack.close()

    async def boot(self) -> None:
        try:
            await self.process.boot()
        except BaseException:
            await self.close()
            raise


T = TypeVar("T", bound=Held)


class Pool(Generic[T]):
    def __init__(self, number: int) -> None:
        self._number = number
        self._ready: deque[T] = deque()
        self._wanted = asyncio.Event()

    @property
    def count(self) -> int:
        return len(self._ready)

    async def _pop(self, fits: Callable[[T], bool]) -> T | None:
        """The first that fits and lives."""
        for held in [one for one in self._ready if fits(one)]:
            self._ready.remove(held)
            if held.process.alive:
                return held
            await held.close()
        return None

    async def _keep(self, boot: Callable[[], Awaitable[T | None]]) -> None:
        try:
            while True:
                self._wanted.clear()
                await self._fill(boot)
                try:
                    async with asyncio.timeout(IDLE_S):
                        await self._wanted.wait()
                except TimeoutError:
                    await self._let_go()
                    await self._wanted.wait()
        finally:
            await self._let_go()

    async def _fill(self, boot: Callable[[], Awaitable[T | None]]) -> None:
        while len(self._ready) < self._number:
            try:
                held = await boot()
            except NotWarm as why:
                log.warning("warm start failed", why=str(why))
                return  # until the next message: it would only fail again
            except Exception:  # a loop edge: without warmth everything still works
                log.exception("warm start failed")
                return
            if held is None:
                return
            self._ready.append(held)

    async def _let_go(self) -> None:
        while self._ready:
            await self._ready.popleft().close()
