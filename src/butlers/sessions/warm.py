"""CLIs that wait, booted and connected, for the butler's next message: the boot is most of a short session.

Off unless ``[butler.runtime] warm`` asks for some. Each waits with a folder and a token of its own, which
opens nothing before its session has begun. What it was booted with it keeps: one that would be booted with
something else now, such as another key, is not asked.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from butlers.domain.ids import uuid7
from butlers.domain.session import Access, SessionRequest, SessionResult
from butlers.process.runner import TimeLimits
from butlers.runtimes.base import MCP_SERVERS, Grants, McpServer, Runtime, Terms
from butlers.sessions.environment import describe
from butlers.sessions.guard import QUERY, LiveSession, SessionGuard
from butlers.sessions.pool import Held, Pool, Recipe
from butlers.sessions.slots import FleetSlots
from butlers.sessions.workspace import Workspaces


class Ready(Protocol):
    """A process that can be asked at once; whoever took it closes it."""

    async def ask(
        self,
        session: SessionRequest,
        prompt: str,
        system_prompt: str,
        limits: TimeLimits,
        life_s: float,
    ) -> SessionResult: ...

    async def close(self) -> None: ...


@dataclass(slots=True)
class Waiting(Held):
    live: LiveSession  # what it was admitted with

    async def ask(
        self,
        session: SessionRequest,
        prompt: str,
        system_prompt: str,
        limits: TimeLimits,
        life_s: float,
    ) -> SessionResult:
        self.live.begin(session, life_s)
        return await self.process.ask(prompt, system_prompt, limits)


class WarmPool(Pool[Waiting]):
    def __init__(
        self,
        butler: str,
        url: str,
        number: int,
        guard: SessionGuard,
        workspaces: Workspaces,
        slots: FleetSlots,
        recipe: Recipe,
        limits: TimeLimits,
    ) -> None:
        super().__init__(number)
        self._butler = butler
        self._url = url
        self._guard = guard
        self._workspaces = workspaces
        self._slots = slots
        self._recipe = recipe
        self._limits = limits
        self._expected: str | None = None  # the system prompt of the message before

    async def take(self, runtime: Runtime, system_prompt: str) -> Waiting | None:
        """One that is ready, if there is one; another is booted in its place."""
        if not self._number:
            return None
        self._expected = system_prompt
        make = await self._recipe.make(runtime)
        self._retire_all_but([make])
        self._wanted.set()
        return await self._pop(make)

    async def run(self, runtime: Runtime) -> None:
        """Keep as many ready as are asked for, while messages come."""
        await self._keep(partial(self._boot, runtime))

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
            make = await self._recipe.make(runtime)
            env = {**make.env, MCP_SERVERS: describe(servers)}
            grants = Grants(Access.SEALED)
            terms = Terms(workspace, grants, self._limits, make.model, make.args)
            process = runtime.warm(servers, env, terms)
            if process is None:
                return None
            waiting = Waiting(process, stack.pop_all(), make, live)
        await waiting.boot(self._expected)
        return waiting
