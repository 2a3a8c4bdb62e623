"""CLIs that wait for a message to any butler of this process: booted, without a butler and without a token.

Off unless ``warm_pool`` of the fleet asks for some. What such a process was booted with it keeps, and its
environment holds a credential: so it only serves a butler that would have booted it with the same. Its
folders are its own and empty. With the message it is told the session's server, token and system prompt.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Collection
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from butlers.domain import tasks
from butlers.domain.ids import uuid7
from butlers.domain.session import Access, SessionRequest, SessionResult
from butlers.process.runner import TimeLimits
from butlers.runtimes.base import Blank, Grants, McpServer, Runtime, Terms, Workspace
from butlers.sessions.guard import QUERY, SessionGuard
from butlers.sessions.pool import Held, Make, Pool, Recipe, waiting_slots
from butlers.sessions.slots import FleetSlots
from butlers.sessions.workspace import Workspaces

NOBODY = "_blank"  # in the place of a butler's name, which begins with a letter


@dataclass(slots=True)
class Unclaimed(Held):
    process: Blank


class BlankPool(Pool[Unclaimed]):
    """Shared by the butlers of one process."""

    def __init__(
        self, number: int, butlers: Collection[str], workspaces: Workspaces, slots: FleetSlots
    ) -> None:
        super().__init__(number)
        self._butlers = butlers
        self._workspaces = workspaces
        self._slots = slots
        self._wish: tuple[Runtime, Make] | None = None
        self._makes: dict[str, Make] = {}  # of each butler, as it was known last

    async def take(self, butler: str, runtime: Runtime, make: Make) -> Unclaimed | None:
        """One of this make, if there is one; another is booted in its place."""
        self._makes[butler] = make
        found = await self._pop(make)
        self._retire_all_but(self._makes.values())
        # Those of another make are for the butlers that use them.
        if found is not None or not self._ready:
            self.want(butler, runtime, make)
        return found

    def want(self, butler: str, runtime: Runtime, make: Make) -> None:
        self._makes[butler] = make
        self._wish = (runtime, make)
        self._wanted.set()

    async def run(self) -> None:
        await self._keep(self._boot)

    async def _boot(self) -> Unclaimed | None:
        if self._wish is None or (slot := self._slots.try_take()) is None:
            return None  # nobody wants one, or the memory is taken
        runtime, make = self._wish
        with ExitStack() as stack:
            stack.callback(os.close, slot[1])
            private = stack.enter_context(self._workspaces.open(uuid7())).private
            empty = private / "empty"
            empty.mkdir(mode=0o700)
            terms = Terms(
                Workspace(empty, private), Grants(Access.SEALED), model=make.model, args=make.args
            )
            process = runtime.blank(self._butlers, make.env, terms)
            if process is None:
                return None
            unclaimed = Unclaimed(process, stack.pop_all(), make)
        await unclaimed.boot()
        return unclaimed


@asynccontextmanager
async def blank_pool(
    home: Path, number: int, butlers: Collection[str], max_sessions: int | None
) -> AsyncIterator[BlankPool | None]:
    """Kept filled until the block is left; None where none are asked for."""
    if not number:
        yield None
        return
    workspaces = Workspaces(home, NOBODY, home)
    workspaces.take()
    pool = BlankPool(number, butlers, workspaces, waiting_slots(home, max_sessions))
    keeping = asyncio.create_task(pool.run())
    try:
        yield pool
    finally:
        await tasks.end(keeping)
        workspaces.release()


@dataclass(frozen=True, slots=True)
class Claimed:
    """A process that has become a butler's for one session."""

    held: Unclaimed
    share: BlankShare

    async def ask(
        self,
        session: SessionRequest,
        prompt: str,
        system_prompt: str,
        limits: TimeLimits,
        life_s: float,
    ) -> SessionResult:
        share, process = self.share, self.held.process
        with share.guard.admit(session, lifetime_s=life_s) as token:
            address = f"{share.url}?{QUERY}={session.session_id}"
            await process.meet({share.butler: McpServer(address, token)})
            return await process.ask(prompt, system_prompt, limits)

    async def close(self) -> None:
        await self.held.close()


@dataclass(frozen=True, slots=True)
class BlankShare:
    """One butler's share in the pool: with its own server, tokens, model and environment."""

    pool: BlankPool | None
    butler: str
    url: str
    guard: SessionGuard
    recipe: Recipe

    async def take(self, runtime: Runtime) -> Claimed | None:
        if self.pool is None:
            return None
        held = await self.pool.take(self.butler, runtime, await self.recipe.make(runtime))
        return Claimed(held, self) if held else None

    async def want(self, runtime: Runtime) -> None:
        """Have some booted before the first message."""
        if self.pool is not None:
            self.pool.want(self.butler, runtime, await self.recipe.make(runtime))
