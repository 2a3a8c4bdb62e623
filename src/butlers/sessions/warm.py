"""CLIs that wait, booted and connected, for the next message: the boot is most of a short session.

Off unless ``[butler.runtime] warm`` asks for some. Each waits with a folder and a token of its own, which
opens nothing before its session has begun. There are never more than part of the memory holds, they are let
go when nothing has come for a while, and whenever one is not as it should be a cold start takes over.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass

import structlog

from butlers.domain.ids import uuid7
from butlers.domain.session import Access, SessionRequest, SessionResult
from butlers.runtimes.base import Grants, Limits, McpServer, NotWarm, Runtime, Terms, Warm
from butlers.sessions.guard import QUERY, LiveSession, SessionGuard
from butlers.sessions.slots import FleetSlots
from butlers.sessions.workspace import Workspaces

log = structlog.get_logger()

FOLDER = "run/warm"
IDLE_S = 900.0  # without a message for so long, they are let go
SHARE = 2  # of the fleet's slots, one in so many may wait

Environment = Callable[[str, dict[str, McpServer]], Awaitable[dict[str, str]]]


@dataclass(slots=True)
class Waiting:
    """One that waits: its process, what it was admitted with, and what has to be given back."""

    process: Warm
    live: LiveSession
    stack: ExitStack

    async def ask(
        self,
        session: SessionRequest,
        prompt: str,
        system_prompt: str,
        limits: Limits,
        life_s: float,
    ) -> SessionResult:
        self.live.begin(session, life_s)
        return await self.process.ask(prompt, system_prompt, limits)

    async def close(self) -> None:
        with suppress(Exception):  # it is over either way
            await self.process.close()
        self.stack.close()


class WarmPool:
    def __init__(
        self,
        butler: str,
        url: str,
        number: int,
        guard: SessionGuard,
        workspaces: Workspaces,
        environment: Environment,
        slots: FleetSlots,
        *,
        model: str | None,
        args: tuple[str, ...],
    ) -> None:
        self._butler = butler
        self._url = url
        self._number = number
        self._guard = guard
        self._workspaces = workspaces
        self._environment = environment
        self._slots = slots
        self._model = model
        self._args = args
        self._ready: deque[Waiting] = deque()
        self._wanted = asyncio.Event()
        self._wanted.set()

    @property
    def count(self) -> int:
        return len(self._ready)

    async def take(self) -> Waiting | None:
        """One that is ready, if there is one; another is booted in its place."""
        self._wanted.set()
        while self._ready:
            waiting = self._ready.popleft()
            if waiting.process.alive:
                return waiting
            await waiting.close()
        return None

    async def run(self, runtime: Runtime) -> None:
        """Keep as many ready as are asked for, while messages come."""
        try:
            while True:
                self._wanted.clear()
                await self._fill(runtime)
                try:
                    async with asyncio.timeout(IDLE_S):
                        await self._wanted.wait()
                except TimeoutError:
                    await self._let_go()
                    await self._wanted.wait()
        finally:
            await self._let_go()

    async def _fill(self, runtime: Runtime) -> None:
        while len(self._ready) < self._number:
            try:
                waiting = await self._boot(runtime)
            except NotWarm as why:
                log.warning("warm start failed", runtime=runtime.name, why=str(why))
                return  # until the next message: it would only fail again
            except Exception:  # a loop edge: without warmth everything still works
                log.exception("warm start failed", runtime=runtime.name)
                return
            if waiting is None:
                return
            self._ready.append(waiting)

    async def _boot(self, runtime: Runtime) -> Waiting | None:
        held = self._slots.try_take()
        if held is None:
            return None  # the memory is taken
        with ExitStack() as stack:
            stack.callback(os.close, held[1])
            address = uuid7()
            token, live = stack.enter_context(self._guard.reserve(address))
            workspace = stack.enter_context(self._workspaces.open(address))
            servers = {self._butler: McpServer(f"{self._url}?{QUERY}={address}", token)}
            env = await self._environment(runtime.name, servers)
            terms = Terms(workspace, Grants(Access.SEALED), model=self._model, args=self._args)
            process = runtime.warm(servers, env, terms)
            if process is None:
                return None
            waiting = Waiting(process, live, stack.pop_all())
        try:
            await process.boot()
        except BaseException:
            await waiting.close()
            raise
        return waiting

    async def _let_go(self) -> None:
        while self._ready:
            await self._ready.popleft().close()
