"""CLIs that wait, booted and connected, for the butler's next message: the boot is most of a short session.

Off unless ``[butler.runtime] warm`` asks for some. Each waits with a folder and a token of its own, which
opens nothing before its session has begun.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from butlers.domain.ids import uuid7
from butlers.domain.session import Access, SessionRequest, SessionResult
from butlers.runtimes.base import Grants, Limits, McpServer, Runtime, Terms
from butlers.sessions.guard import QUERY, LiveSession, SessionGuard
from butlers.sessions.pool import Held, Pool
from butlers.sessions.slots import FleetSlots
from butlers.sessions.workspace import Workspaces

Environment = Callable[[str, dict[str, McpServer]], Awaitable[dict[str, str]]]


class Ready(Protocol):
    """A process that can be asked at once; whoever took it closes it."""

    async def ask(
        self,
        session: SessionRequest,
        prompt: str,
        system_prompt: str,
        limits: Limits,
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
        limits: Limits,
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
        environment: Environment,
        slots: FleetSlots,
        *,
        model: str | None,
        args: tuple[str, ...],
    ) -> None:
        super().__init__(number)
        self._butler = butler
        self._url = url
        self._guard = guard
        self._workspaces = workspaces
        self._environment = environment
        self._slots = slots
        self._model = model
        self._args = args

    async def take(self) -> Waiting | None:
        """One that is ready, if there is one; another is booted in its place."""
        self._wanted.set()
        return await self._pop(lambda _any: True)

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
            env = await self._environment(runtime.name, servers)
            terms = Terms(workspace, Grants(Access.SEALED), model=self._model, args=self._args)
            process = runtime.warm(servers, env, terms)
            if process is None:
                return None
            waiting = Waiting(process, stack.pop_all(), live)
        await waiting.boot()
        return waiting
