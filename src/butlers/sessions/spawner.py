"""The spawner: takes a slot, opens the log, invokes a runtime, closes the log.

A reflex that knows the prompt answers it without a model. What no reflex knows goes to the CLI, when there
is one: in a folder, an environment and with a token of its own, under the access level of its trigger, and
within the day's budget.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    ExitStack,
    contextmanager,
    nullcontext,
)
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from uuid import UUID

import asyncpg
import structlog

from butlers.config.butler import ButlerConfig
from butlers.db.database import Database
from butlers.domain.clock import Clock
from butlers.domain.errors import ButlersError, DatabaseUnavailable, OverBudget, QueueFull
from butlers.domain.faults import kill_point
from butlers.domain.session import Access, Outcome, SessionRequest, SessionResult, Usage
from butlers.process.runner import TimeLimits
from butlers.runtimes.base import McpServer, NotWarm, Runtime, Terms
from butlers.runtimes.failures import STOPPED
from butlers.runtimes.reflex import ReflexRuntime
from butlers.sessions import session_log as log_store
from butlers.sessions.budget import Budget
from butlers.sessions.concurrency import FleetSlots, Running, Stopped
from butlers.sessions.guard import QUERY, LiveSession, SessionGuard
from butlers.sessions.notes import Notes
from butlers.sessions.pool import ButlerPool
from butlers.sessions.prompt import compose_prompt
from butlers.sessions.session_log import DoneCall, Opening, SessionLog
from butlers.sessions.skills import ButlerSkills
from butlers.sessions.system_prompt import read_system_prompt
from butlers.sessions.workspace import SessionEnvironment, Workspaces, grants_for, level_of
from butlers.wire.telemetry import SessionSpan, session_span

log = structlog.get_logger()

REFUSED = (
    Outcome.RATE_LIMITED,
    Outcome.NO_CREDENTIAL,
    Outcome.OVER_BUDGET,  # at its vendor's
    Outcome.MCP_UNAVAILABLE,
)
NOTHING = Usage(0, 0, 0)
CANCELLED = SessionResult(Outcome.CANCELLED, STOPPED, error=STOPPED)
BYTES_OF_A_TOKEN = 4  # roughly, in any language model
CLOSE_AGAIN_S = 1.0
TOKEN_GRACE_S = 5.0  # a token outlives the session's time limit by this, and then opens nothing


@dataclass(frozen=True, slots=True)
class Means:
    """What sessions are made with."""

    config: ButlerConfig
    url: str
    database: Database
    log: SessionLog
    clock: Clock
    guard: SessionGuard
    workspaces: Workspaces
    environment: SessionEnvironment
    budget: Budget
    slots: FleetSlots
    warm: ButlerPool
    skills: ButlerSkills
    notes: Notes
    # What modules add to the system prompt, and the bytes of the tools that a session is offered.
    context: Callable[[SessionRequest], Awaitable[Sequence[str]]]
    offered_bytes: Callable[[SessionRequest], int]


@dataclass(frozen=True, slots=True)
class _Plan:
    """How one session will run."""

    runtime: Runtime
    access: Access
    system_prompt: str
    opening: Opening
    thinks: bool  # on a model, so it costs something


class Spawner:
    def __init__(self, means: Means, reflex: ReflexRuntime, model: Runtime | None) -> None:
        self.reflex = reflex
        self.model = model
        self._means = means
        self._butler = means.config.name
        self._slots = asyncio.Semaphore(means.config.runtime.max_concurrent_sessions)
        self._queued = 0
        self._running = Running()

    @property
    def runtime(self) -> Runtime:
        """What thinks where no reflex does."""
        return self.model or self.reflex

    async def run(self, session: SessionRequest) -> SessionResult:
        async with AsyncExitStack() as held:
            try:
                plan = await self._running.stoppable(
                    session.session_id, self._prepare(session, held)
                )
            except Stopped:
                return await self._never_begin(session)
            with session_span(session, butler=self._butler, runtime=plan.runtime.name) as span:
                return await self._attend(session, plan, span)

    def stop(self, session_id: UUID) -> bool:
        return self._running.stop(session_id)

    def stop_all(self) -> list[UUID]:
        return self._running.stop_all()

    async def settle(self) -> None:
        await self._running.settle()

    async def _take_slot(self) -> None:
        if self._slots.locked() and self._queued >= self._means.config.runtime.max_queued:
            raise QueueFull(f"{self._butler} has {self._queued} sessions waiting already")
        self._queued += 1
        try:
            await self._slots.acquire()
        finally:
            self._queued -= 1

    async def _prepare(self, session: SessionRequest, held: AsyncExitStack) -> _Plan:
        """Plan it, and wait for the butler's slot, then the fleet's. A reflex needs none: it is over before
        a model has begun."""
        plan = await self._plan(session)
        if plan.thinks:
            await self._take_slot()
            held.callback(self._slots.release)
            await held.enter_async_context(self._means.slots.taken())
        return plan

    async def _never_begin(self, session: SessionRequest) -> SessionResult:
        """Stopped while it waited: that it was asked for is kept all the same."""
        opening = Opening(self.runtime.name, self._means.config.runtime.model)
        stopped = replace(CANCELLED, usage=NOTHING)
        async with self._means.database.transaction() as connection:
            await log_store.open_session(connection, session, opening)
            await log_store.close_session(connection, session.session_id, stopped, 0)
        return stopped

    async def _plan(self, session: SessionRequest) -> _Plan:
        if self.model is None or self.reflex.knows(session.prompt, session.request):
            opening = Opening(self.reflex.name, access=Access.SEALED)
            return _Plan(self.reflex, Access.SEALED, "", opening, thinks=False)
        config, runtime = self._means.config, self.model
        wanted = level_of(session, config)
        access = wanted if runtime.holds(wanted) else Access.SEALED
        because = (
            runtime.withholds(access, config.directory)
            if access is wanted
            else f"{runtime.name} can not hold {wanted}"
        )
        context = await self._means.context(session)
        skills = await self._means.skills.prompt_text()
        system_prompt = read_system_prompt(config.directory, config.name, *context, skills=skills)
        offered = self._means.offered_bytes(session)
        size = len(system_prompt.encode()) + offered + runtime.own_bytes(access)
        opening = Opening(
            runtime.name, config.runtime.model, access, because, size // BYTES_OF_A_TOKEN
        )
        return _Plan(runtime, access, system_prompt, opening, thinks=True)

    async def _attend(
        self, session: SessionRequest, plan: _Plan, span: SessionSpan
    ) -> SessionResult:
        with self._running.unbroken(session.session_id) as stop:
            done = await self._open(session, plan)
        started = time.monotonic()
        try:
            result = CANCELLED if stop.cancelled() else await self._think(session, plan, done)
        except BaseException as error:
            failed = self._close(session, plan, _failure(error), span, started)
            await asyncio.shield(self._running.see_to_its_end(failed))
            raise
        ended = self._close(session, plan, result, span, started)
        await asyncio.shield(self._running.see_to_its_end(ended))
        return result

    async def _open(self, session: SessionRequest, plan: _Plan) -> Sequence[DoneCall]:
        """Write it down before it happens, within the budget; says what earlier runs of it did."""
        means, now = self._means, self._means.clock.now()
        done: Sequence[DoneCall] = ()
        try:
            async with means.database.transaction() as connection:
                if plan.thinks:
                    await means.budget.open(connection, session, plan.opening, now)
                    if session.request_id is not None:
                        done = await log_store.calls_of_request(connection, session.request_id)
                else:
                    await log_store.open_session(connection, session, plan.opening)
        except OverBudget as error:
            async with means.database.transaction() as connection:
                await means.budget.refuse(connection, session, plan.opening, str(error))
            raise
        except BaseException:
            means.budget.give_back(session.session_id)
            raise
        kill_point("session.opened")
        return done

    async def _think(
        self, session: SessionRequest, plan: _Plan, done: Sequence[DoneCall]
    ) -> SessionResult:
        try:
            result = await self._running.stoppable(
                session.session_id, self._invoke(session, plan, done)
            )
        except Stopped:  # before there was a process that could tell more
            return CANCELLED
        # Half a sentence of a model is no answer; that it was stopped is one.
        return replace(result, text=STOPPED) if result.outcome is Outcome.CANCELLED else result

    async def _invoke(
        self, session: SessionRequest, plan: _Plan, done: Sequence[DoneCall]
    ) -> SessionResult:
        prompt = compose_prompt(session, done) if plan.thinks else session.prompt
        total_s = self._means.config.runtime.timeout_s
        # The runtime keeps its own limits; this one is for a runtime that does not.
        limit = asyncio.timeout(total_s + TOKEN_GRACE_S)
        try:
            with self._means.guard.watch(session.session_id) as outside:
                async with limit, self._attended(session, plan):
                    result = await self._ask_warm(session, plan, prompt)
                    result = result or await self._ask_cold(session, plan, prompt)
                    return replace(result, outside=frozenset(outside))
        except TimeoutError:
            if not limit.expired():
                raise  # something on the way had a limit of its own; the session's time was not over
            text = f"The session took longer than {total_s:g} s and was ended."
            return SessionResult(Outcome.TIMED_OUT, text, error=text)

    def _attended(self, session: SessionRequest, plan: _Plan) -> AbstractAsyncContextManager[None]:
        """A reflex is over before a pack's server would have started."""
        if not plan.thinks:
            return nullcontext()
        return self._means.skills.attending(session, plan.access)

    async def _ask_warm(
        self, session: SessionRequest, plan: _Plan, prompt: str
    ) -> SessionResult | None:
        """On a process that waits for a message; None when there is none, or it is not as it should be."""
        ordinary = session.request is not None and session.tools is None
        if not plan.thinks or plan.access is not Access.SEALED or not ordinary:
            return None
        pool = self._means.warm
        ready = await pool.take(plan.runtime, plan.system_prompt)
        if ready is None:
            return None
        total_s = self._means.config.runtime.timeout_s
        try:
            limits, lifetime_s = TimeLimits.within(total_s), total_s + TOKEN_GRACE_S
            return await pool.ask(ready, session, prompt, plan.system_prompt, limits, lifetime_s)
        except NotWarm as why:
            log.warning("warm start failed; starting cold", why=str(why))
            return None
        finally:
            await ready.close()

    async def _ask_cold(self, session: SessionRequest, plan: _Plan, prompt: str) -> SessionResult:
        means, config = self._means, self._means.config
        total_s = config.runtime.timeout_s
        with ExitStack() as stack:
            token = stack.enter_context(
                means.guard.admit(session, lifetime_s=total_s + TOKEN_GRACE_S)
            )
            workspace = stack.enter_context(means.workspaces.open(session.session_id))
            servers = {self._butler: McpServer(f"{means.url}?{QUERY}={session.session_id}", token)}
            live = means.guard.find(token)
            assert live is not None
            # A sealed session reads no files: it opens and runs skills through its butler.
            sealed = plan.access is Access.SEALED
            mounted = () if sealed else await means.skills.mount(workspace.home)
            grants = grants_for(plan.access, config.directory, mounted)
            terms = Terms(
                workspace,
                grants,
                TimeLimits.within(total_s),
                config.runtime.model,
                config.runtime.args,
                session.request,
            )
            outside = session.request is not None
            env = await means.environment.build(
                plan.runtime.name, servers, access=plan.access, outside=outside
            )
            stack.enter_context(self._guarded_notes(session, live, grants.writable))
            result = await plan.runtime.invoke(prompt, plan.system_prompt, servers, env, terms)
            return result if live.connected or not plan.thinks else _unreached(result)

    @contextmanager
    def _guarded_notes(
        self, session: SessionRequest, live: LiveSession, files: tuple[Path, ...]
    ) -> Iterator[None]:
        notes, news = self._means.notes, []
        try:
            with notes.guarded(session, live, files) as news:
                yield
        finally:
            if news:
                self._running.see_to_its_end(notes.tell(session, news))

    async def _close(
        self,
        session: SessionRequest,
        plan: _Plan,
        result: SessionResult,
        span: SessionSpan,
        started: float,
    ) -> None:
        seconds = time.monotonic() - started
        if _sent_away_at_once(result):
            result = replace(result, usage=NOTHING)
        cost = self._cost(plan, result)
        span.ended(result, seconds, None if cost is None else float(cost))
        duration_ms = round(seconds * 1000)
        if plan.thinks:
            self._means.budget.settle(session.session_id, result, cost)
        close = partial(self._means.log.close, session.session_id, result, duration_ms, cost)
        try:
            await close()
        except (ButlersError, asyncpg.PostgresError) as error:
            # The session's own outcome matters more than its log.
            log.warning("session log not closed", session=str(session.session_id), error=str(error))
            if isinstance(error, DatabaseUnavailable):
                self._running.see_to_its_end(self._close_later(session.session_id, close))
            return
        log.info(
            "session ended",
            session=str(session.session_id),
            trigger=session.trigger_source,
            runtime=plan.runtime.name,
            outcome=str(result.outcome),
            duration_ms=duration_ms,
        )

    async def _close_later(self, session_id: UUID, close: Callable[[], Awaitable[None]]) -> None:
        """When the database is back; if it is not while we live, the next start finds it open."""
        while not await self._running.is_ending(CLOSE_AGAIN_S):
            try:
                await close()
            except (ButlersError, asyncpg.PostgresError) as error:
                if not isinstance(error, DatabaseUnavailable):
                    log.warning(
                        "session log never closed", session=str(session_id), error=str(error)
                    )
                    return
            else:
                log.info("session log closed at last", session=str(session_id))
                return

    def _cost(self, plan: _Plan, result: SessionResult) -> Decimal | None:
        if not plan.thinks:
            return None
        return self._means.budget.cost(result, self._means.config.runtime.model)


def _sent_away_at_once(result: SessionResult) -> bool:
    """Before it could use any tokens. One that had said or done something used some, and may not tell."""
    began = result.text or result.tool_calls or result.usage.input_tokens is not None
    return result.outcome in REFUSED and not began


def _unreached(result: SessionResult) -> SessionResult:
    """A CLI may say that all went well without ever having had a tool: our own server knows better."""
    if not result.ok:
        return result
    return replace(result, outcome=Outcome.MCP_UNAVAILABLE, error="it never reached its butler")


def _failure(error: BaseException) -> SessionResult:
    outcome = Outcome.CANCELLED if isinstance(error, asyncio.CancelledError) else Outcome.CRASHED
    said = str(error)
    name = type(error).__name__
    return SessionResult(outcome, "", error=f"{name}: {said}" if said else name)
