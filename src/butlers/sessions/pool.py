"""Pools of warm processes: CLIs that are booted before a message comes, which is most of a short session.

A pool has one of two scopes. A butler's own pool (``[butler.runtime] warm``) boots processes that are
connected to the butler, with a token that opens nothing before the session has begun. The shared pool
(``warm_pool`` in fleet.toml) boots processes that know no butler and no token; one is connected to the
butler that takes it. A process is taken only by a butler that would boot it with the same model, arguments
and environment now: to the credential's value, or, with the key broker, with its own token in place of each
credential. That token opens nothing until the session has begun.

Pools use at most part of the fleet's slots and let their processes go when no message comes for a while. If
anything is wrong with a warm process, the session starts cold.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from butlers.broker.server import Broker
from butlers.config.butler import ButlerConfig
from butlers.domain import tasks
from butlers.domain.clock import uuid7
from butlers.domain.session import Access, SessionRequest, SessionResult
from butlers.process.runner import TimeLimits
from butlers.runtimes.base import (
    MCP_SERVERS,
    Grants,
    McpServer,
    NotWarm,
    Runtime,
    Terms,
    WarmCli,
    Workspace,
)
from butlers.runtimes.cli import describe_servers
from butlers.sessions.broker_access import (
    NO_TOKEN,
    BrokerAccess,
    BrokerToken,
    reserve_token,
)
from butlers.sessions.concurrency import FleetSlots
from butlers.sessions.guard import QUERY, LiveSession, SessionGuard
from butlers.sessions.workspace import SessionEnvironment, Workspaces

log = structlog.get_logger()

SLOTS_FOLDER = "run/warm"
IDLE_S = 900.0  # without a message, after which the processes are let go
SLOTS_SHARE = 2  # one in so many of the fleet's slots may hold a warm process
SHARED = "_blank"  # folder of the shared pool; a butler's name begins with a letter


def warm_slots(home: Path, max_sessions: int | None) -> FleetSlots:
    """Return the slots for warm processes of the whole fleet."""
    number = FleetSlots(home, max_sessions).number
    return FleetSlots(home, max(1, number // SLOTS_SHARE), SLOTS_FOLDER)


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """Everything a process is booted with. A process serves only sessions of an equal spec."""

    runtime: str
    model: str | None
    args: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False)


@dataclass(slots=True)
class WarmProcess:
    """A process with the resources to release when it is closed."""

    process: WarmCli
    stack: ExitStack
    spec: ProcessSpec
    token: BrokerToken = NO_TOKEN
    live: LiveSession | None = None  # the token of a process that is connected to its butler

    async def close(self) -> None:
        try:
            await self.process.close()
        except Exception:  # its resources are released either way
            log.exception("warm process did not end cleanly")
        finally:
            self.stack.close()

    async def boot(self, expected: str | None) -> None:
        try:
            await self.process.boot(expected)
        except BaseException:
            await self.close()
            raise


# Starts a process and pushes what it needs on the stack; None if the runtime has no warm processes.
Start = Callable[
    [Runtime, ProcessSpec, Mapping[str, str], ExitStack], tuple[WarmCli, LiveSession | None] | None
]


class ProcessPool:
    """Keep up to ``size`` processes ready while messages come."""

    def __init__(
        self, size: int, slots: FleetSlots, start: Start, broker: Broker | None = None
    ) -> None:
        self.size = size
        self._broker = broker
        self.expected: str | None = None  # system prompt of the latest message
        self._slots = slots
        self._start = start
        self._ready: deque[WarmProcess] = deque()
        self._retired: deque[WarmProcess] = deque()  # to be closed
        self._wake = asyncio.Event()
        # Of each butler, as last known; the one that was wanted last stands last.
        self._wanted: dict[str, tuple[Runtime, ProcessSpec]] = {}

    @property
    def count(self) -> int:
        return len(self._ready)

    async def take(self, butler: str, runtime: Runtime, spec: ProcessSpec) -> WarmProcess | None:
        """Return a process of this spec, if one is ready. Another is booted in its place."""
        known = self._wanted.get(butler)
        if known is None or known[1] != spec:
            self._wanted[butler] = (runtime, spec)
        found = await self._pop(spec)
        self._retire_unused()
        # Ready processes of another spec are for the butlers that use them.
        if found is not None or not self._ready:
            self.want(butler, runtime, spec)
        return found

    def want(self, butler: str, runtime: Runtime, spec: ProcessSpec) -> None:
        """Boot a process of this spec next."""
        self._wanted.pop(butler, None)
        self._wanted[butler] = (runtime, spec)
        self._wake.set()

    async def run(self) -> None:
        try:
            while True:
                self._wake.clear()
                await _close_all(self._retired)
                await self._fill()
                try:
                    async with asyncio.timeout(IDLE_S):
                        await self._wake.wait()
                except TimeoutError:
                    await self.empty()
                    await self._wake.wait()
        finally:
            await self.empty()

    async def empty(self) -> None:
        await _close_all(self._retired)
        await _close_all(self._ready)

    async def _pop(self, spec: ProcessSpec) -> WarmProcess | None:
        for ready in [one for one in self._ready if one.spec == spec]:
            self._ready.remove(ready)
            if ready.process.alive:
                return ready
            await ready.close()
        return None

    def _retire_unused(self) -> None:
        """Set aside the processes that no butler would boot any more; ``run`` closes them."""
        wanted = [spec for _, spec in self._wanted.values()]
        for ready in [one for one in self._ready if one.spec not in wanted]:
            log.info("warm process retired: its model, arguments or environment changed")
            self._ready.remove(ready)
            self._retired.append(ready)

    async def _fill(self) -> None:
        while len(self._ready) < self.size:
            try:
                ready = await self._boot()
            except NotWarm as why:
                log.warning("warm start failed", why=str(why))
                return  # until the next message: it would only fail again
            except Exception:  # a loop edge: without warm processes everything still works
                log.exception("warm start failed")
                return
            if ready is None:
                return
            self._ready.append(ready)

    def _choose(self) -> tuple[Runtime, ProcessSpec] | None:
        """Return what to boot: the spec with the fewest ready processes, of those the one wanted last."""
        ready = [one.spec for one in self._ready]
        return min(
            reversed(self._wanted.values()), key=lambda one: ready.count(one[1]), default=None
        )

    async def _boot(self) -> WarmProcess | None:
        chosen = self._choose()
        if chosen is None or (slot := self._slots.try_take()) is None:
            return None
        runtime, spec = chosen
        with ExitStack() as stack:
            stack.callback(os.close, slot[1])
            token = stack.enter_context(reserve_token(self._broker, spec.env))
            started = self._start(runtime, spec, token.env, stack)
            if started is None:
                return None
            process, live = started
            ready = WarmProcess(process, stack.pop_all(), spec, token, live)
        await ready.boot(self.expected)
        return ready


async def _close_all(processes: deque[WarmProcess]) -> None:
    while processes:
        await processes.popleft().close()


@asynccontextmanager
async def shared_pool(
    home: Path,
    size: int,
    butlers: Collection[str],
    max_sessions: int | None,
    broker: Broker | None = None,
) -> AsyncIterator[ProcessPool | None]:
    """Keep processes ready for any of these butlers; None where no size is set."""
    if not size:
        yield None
        return
    workspaces = Workspaces(home, SHARED, home)

    def start(
        runtime: Runtime, spec: ProcessSpec, env: Mapping[str, str], stack: ExitStack
    ) -> tuple[WarmCli, None] | None:
        private = stack.enter_context(workspaces.open(uuid7())).private
        empty = private / "empty"
        empty.mkdir(mode=0o700)
        terms = Terms(
            Workspace(empty, private, (home,)),
            Grants(Access.SEALED),
            model=spec.model,
            args=spec.args,
            brokered=broker is not None,
        )
        process = runtime.warm({}, env, terms, butlers)
        return None if process is None else (process, None)

    workspaces.take()
    pool = ProcessPool(size, warm_slots(home, max_sessions), start, broker)
    running = asyncio.create_task(pool.run())
    try:
        yield pool
    finally:
        await tasks.end(running)
        workspaces.release()


class ButlerPool:
    """Warm processes for one butler: from its own pool, else from the shared one."""

    def __init__(
        self,
        config: ButlerConfig,
        url: str,
        guard: SessionGuard,
        workspaces: Workspaces,
        environment: SessionEnvironment,
        slots: FleetSlots,
        shared: ProcessPool | None = None,
        broker: BrokerAccess | None = None,
    ) -> None:
        proxy = None if broker is None else broker.broker
        self.own = ProcessPool(config.runtime.warm, slots, self._start, proxy)
        self._broker = broker
        self.shared = shared
        self._config = config
        self._url = url
        self._guard = guard
        self._workspaces = workspaces
        self._environment = environment

    async def take(
        self, runtime: Runtime, system_prompt: str, *, all_tools: bool = True
    ) -> WarmProcess | None:
        """Return a process that is ready; the caller closes it.

        One of the own pool has read the list of all tools, so that a session with few of them, such as a
        classification, takes one of the shared pool only.
        """
        self.own.expected = system_prompt
        pools = self._pools if all_tools else [one for one in self._pools if one is not self.own]
        if not pools:
            return None
        spec = await self._spec(runtime)
        for pool in pools:
            if (found := await pool.take(self._config.name, runtime, spec)) is not None:
                return found
        return None

    async def want(self, runtime: Runtime) -> None:
        """Boot processes before the first message."""
        for pool in self._pools:
            pool.want(self._config.name, runtime, await self._spec(runtime))

    async def ask(
        self,
        ready: WarmProcess,
        session: SessionRequest,
        prompt: str,
        system_prompt: str,
        limits: TimeLimits,
        lifetime_s: float,
    ) -> SessionResult:
        if self._broker is not None:
            runtime = ready.spec.runtime
            self._broker.bind(ready.token, session.session_id, runtime, Access.SEALED)
        if ready.live is not None:
            ready.live.begin(session, lifetime_s)
            return await ready.process.ask(prompt, system_prompt, limits)
        with self._guard.admit(session, lifetime_s=lifetime_s) as token:
            url = f"{self._url}?{QUERY}={session.session_id}"
            await ready.process.connect({self._config.name: McpServer(url, token)})
            return await ready.process.ask(prompt, system_prompt, limits)

    @property
    def _pools(self) -> list[ProcessPool]:
        return [pool for pool in (self.own, self.shared) if pool is not None and pool.size]

    async def _spec(self, runtime: Runtime) -> ProcessSpec:
        env = await self._environment.variables(runtime.name, access=Access.SEALED, outside=True)
        return ProcessSpec(runtime.name, self._config.runtime.model, self._config.runtime.args, env)

    def _start(
        self, runtime: Runtime, spec: ProcessSpec, given: Mapping[str, str], stack: ExitStack
    ) -> tuple[WarmCli, LiveSession] | None:
        address = uuid7()
        token, live = stack.enter_context(self._guard.reserve(address))
        workspace = stack.enter_context(self._workspaces.open(address))
        servers = {self._config.name: McpServer(f"{self._url}?{QUERY}={address}", token)}
        env = {**given, MCP_SERVERS: json.dumps(describe_servers(servers))}
        limits = TimeLimits.within(self._config.runtime.timeout_s)
        terms = Terms(
            workspace,
            Grants(Access.SEALED),
            limits,
            spec.model,
            spec.args,
            brokered=self._broker is not None,
        )
        process = runtime.warm(servers, env, terms)
        return None if process is None else (process, live)
