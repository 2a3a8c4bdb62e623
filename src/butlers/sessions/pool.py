"""Processes that are kept ready: as many as are asked for, while messages come.

There are never more than part of the memory holds, they are let go when nothing has come for a while, and
whenever one is not as it should be a cold start takes over.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

import structlog

from butlers.runtimes.base import NotWarm, Runtime, Warm
from butlers.sessions.slots import FleetSlots

log = structlog.get_logger()

FOLDER = "run/warm"
IDLE_S = 900.0  # without a message for so long, they are let go
SHARE = 2  # of the fleet's slots, one in so many may wait


def waiting_slots(home: Path, max_sessions: int | None) -> FleetSlots:
    """Places for processes that wait, in the whole fleet."""
    number = FleetSlots(home, max_sessions).number
    return FleetSlots(home, max(1, number // SHARE), FOLDER)


@dataclass(frozen=True, slots=True)
class Make:
    """What a process is booted with and keeps. Two are alike when all of it is, to the credential's value."""

    runtime: str
    model: str | None
    args: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a butler's processes are made: what it would boot one with now."""

    environment: Callable[[str], Awaitable[dict[str, str]]]
    model: str | None
    args: tuple[str, ...]

    async def make(self, runtime: Runtime) -> Make:
        return Make(runtime.name, self.model, self.args, await self.environment(runtime.name))


@dataclass(slots=True)
class Held:
    """One that waits: its process, what has to be given back, and what it was booted with."""

    process: Warm
    stack: ExitStack
    make: Make

    async def close(self) -> None:
        try:
            await self.process.close()
        except Exception:  # it is over either way, and what it held is given back
            log.exception("a process that waited did not end well")
        finally:
            self.stack.close()

    async def boot(self, expected: str | None = None) -> None:
        try:
            await self.process.boot(expected)
        except BaseException:
            await self.close()
            raise


T = TypeVar("T", bound=Held)


class Pool(Generic[T]):
    def __init__(self, number: int) -> None:
        self._number = number
        self._ready: deque[T] = deque()
        self._retired: deque[T] = deque()  # of no use any more, and to be closed
        self._wanted = asyncio.Event()

    @property
    def count(self) -> int:
        return len(self._ready)

    async def _pop(self, make: Make) -> T | None:
        """The first of this make that lives."""
        for held in [one for one in self._ready if one.make == make]:
            self._ready.remove(held)
            if held.process.alive:
                return held
            await held.close()
        return None

    def _retire_all_but(self, makes: Collection[Make]) -> None:
        """Those that nobody would boot so any more; they are closed beside, and nobody waits for it."""
        for held in [one for one in self._ready if one.make not in makes]:
            log.info("a process that waited was booted with what is no longer so; it is ended")
            self._ready.remove(held)
            self._retired.append(held)

    async def _keep(self, boot: Callable[[], Awaitable[T | None]]) -> None:
        try:
            while True:
                self._wanted.clear()
                await _close(self._retired)
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
        await _close(self._retired)
        await _close(self._ready)


async def _close(these: deque[T]) -> None:
    while these:
        await these.popleft().close()
