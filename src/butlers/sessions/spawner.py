"""The spawner: takes a slot, opens the log, invokes a runtime, closes the log.

A prompt that a reflex matches is answered without a model. Other prompts go to the CLI, if there is one: with
a folder, an environment and a token of the session's own, the access level of its trigger, and within the
daily budget.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import (
    AsyncExitStack,
    ExitStack,
    contextmanager,
    suppress,
)
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

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
from butlers.sessions import session_log
from butlers.sessions.broker_access import BrokerAccess, reserve_token
from butlers.sessions.budget import Budget
from butlers.sessions.concurrency import FleetSlots, RunningSessions, SessionStopped
from butlers.sessions.guard import QUERY, LiveSession, Observed, SessionGuard
from butlers.sessions.judgment import (
    CUT_OFF,
    crash_result,
    cut_off_text,
    refused_at_once,
    unreached,
    without_false_success,
    without_interim_words,
)
from butlers.sessions.notes import Notes
from butlers.sessions.pool import ButlerPool
from butlers.sessions.prompt import compose_prompt
from butlers.sessions.session_log import EarlierCall, SessionLog, SessionOpening
from butlers.sessions.skills import ButlerSkills
from butlers.sessions.system_prompt import read_system_prompt
from butlers.sessions.workspace import SessionEnvironment, Workspaces, grants_for, level_of
from butlers.wire.telemetry import SessionSpan, session_span

log = structlog.get_logger()

NO_USAGE = Usage(0, 0, 0)
CANCELLED = SessionResult(Outcome.CANCELLED, STOPPED, error=STOPPED)
BYTES_PER_TOKEN = 4  # roughly
CLOSE_RETRY_S = 1.0
TOKEN_GRACE_S = 5.0  # by which a token outlives the session's time limit


@dataclass(frozen=True, slots=True)
class SpawnerDeps:
    """Everything the spawner uses."""

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
    # Text of modules for the system prompt, and bytes of the tools that a session is offered.
    context: Callable[[SessionRequest], Awaitable[Sequence[str]]]
    offered_bytes: Callable[[SessionRequest], int]
    # Calls a tool for a session that runs in this process.
    call: Callable[[LiveSession, str, dict[str, Any]], Awaitable[Any]]
    broker: BrokerAccess | None = None  # None: sessions have the key itself


@dataclass(frozen=True, slots=True)
class _Plan:
    """The plan of one session."""

    model: Runtime | None  # None: a reflex answers
    access: Access
    system_prompt: str
    opening: SessionOpening

    @property
    def uses_model(self) -> bool:
        return self.model is not None


class Spawner:
    def __init__(self, deps: SpawnerDeps, reflex: ReflexRuntime, model: Runtime | None) -> None:
        self.reflex = reflex
        self.model = model
        self._deps = deps
        self._butler = deps.config.name
        self._slots = asyncio.Semaphore(deps.config.runtime.max_concurrent_sessions)
        self._queued = 0
        self._running = RunningSessions()

    @property
    def runtime(self) -> Runtime | ReflexRuntime:
        """The runtime for prompts that no reflex matches."""
        return self.model or self.reflex

    async def run(self, session: SessionRequest) -> SessionResult:
        async with AsyncExitStack() as held:
            try:
                plan = await self._running.stoppable(
                    session.session_id, self._prepare(session, held)
                )
            except SessionStopped:
                return await self._log_unstarted(session)
            with session_span(session, butler=self._butler, runtime=plan.opening.runtime) as span:
                return await self._run_planned(session, plan, span)

    def stop(self, session_id: UUID) -> bool:
        return self._running.stop(session_id)

    def stop_all(self) -> list[UUID]:
        return self._running.stop_all()

    async def settle(self) -> None:
        await self._running.settle()

    async def _take_slot(self) -> None:
        if self._slots.locked() and self._queued >= self._deps.config.runtime.max_queued:
            raise QueueFull(f"{self._butler} already has {self._queued} sessions waiting")
        self._queued += 1
        try:
            await self._slots.acquire()
        finally:
            self._queued -= 1

    async def _prepare(self, session: SessionRequest, held: AsyncExitStack) -> _Plan:
        """Plan the session and wait for the butler's slot, then the fleet's. A reflex needs no slot."""
        plan = await self._plan(session)
        if plan.uses_model:
            await self._take_slot()
            held.callback(self._slots.release)
            await held.enter_async_context(self._deps.slots.taken())
        return plan

    async def _log_unstarted(self, session: SessionRequest) -> SessionResult:
        """Write a session to the log that was stopped before it started."""
        opening = SessionOpening(self.runtime.name, self._deps.config.runtime.model)
        stopped = replace(CANCELLED, usage=NO_USAGE)
        async with self._deps.database.transaction() as connection:
            await session_log.open_session(connection, session, opening)
            await session_log.close_session(connection, session.session_id, stopped, 0)
        return stopped

    async def _plan(self, session: SessionRequest) -> _Plan:
        if self.model is None or self.reflex.knows(session.prompt, session.request):
            opening = SessionOpening(self.reflex.name, access=Access.SEALED)
            return _Plan(None, Access.SEALED, "", opening)
        config, runtime = self._deps.config, self.model
        wanted = level_of(session, config)
        access = wanted if runtime.holds(wanted) else Access.SEALED
        because = (
            runtime.withholds(access, config.directory)
            if access is wanted
            else f"{runtime.name} cannot hold {wanted}"
        )
        context = await self._deps.context(session)
        skills = await self._deps.skills.prompt_text()
        system_prompt = read_system_prompt(config.directory, config.name, *context, skills=skills)
        offered = self._deps.offered_bytes(session)
        size = len(system_prompt.encode()) + offered + runtime.own_bytes(access)
        opening = SessionOpening(
            runtime.name, config.runtime.model, access, because, size // BYTES_PER_TOKEN
        )
        return _Plan(runtime, access, system_prompt, opening)

    async def _run_planned(
        self, session: SessionRequest, plan: _Plan, span: SessionSpan
    ) -> SessionResult:
        with self._running.uninterrupted(session.session_id) as stop:
            done = await self._open(session, plan)
        # The list of earlier calls is in the prompt, with what those sessions had read.
        session = replace(session, outside=session.outside.union(*(call.outside for call in done)))
        started = time.monotonic()
        try:
            result = CANCELLED if stop.cancelled() else await self._ask(session, plan, done)
        except BaseException as error:
            failed = self._close(session, plan, crash_result(error), span, started)
            await asyncio.shield(self._running.track_task(failed))
            raise
        ended = self._close(session, plan, result, span, started)
        result = await asyncio.shield(self._running.track_task(ended))
        return without_interim_words(result) if plan.uses_model else result

    async def _open(self, session: SessionRequest, plan: _Plan) -> Sequence[EarlierCall]:
        """Write the session to the log, within the budget. Return earlier calls of its request."""
        deps, now = self._deps, self._deps.clock.now()
        done: Sequence[EarlierCall] = ()
        try:
            async with deps.database.transaction() as connection:
                if plan.uses_model:
                    await deps.budget.open(connection, session, plan.opening, now)
                    if session.request_id is not None:
                        done = await session_log.calls_of_request(connection, session.request_id)
                else:
                    await session_log.open_session(connection, session, plan.opening)
        except OverBudget as error:
            async with deps.database.transaction() as connection:
                await deps.budget.refuse(connection, session, plan.opening, str(error))
            raise
        except BaseException:
            deps.budget.give_back(session.session_id)
            raise
        kill_point("session.opened")
        return done

    async def _ask(
        self, session: SessionRequest, plan: _Plan, done: Sequence[EarlierCall]
    ) -> SessionResult:
        with self._deps.guard.watch(session.session_id) as seen:
            seen.stop = partial(self.stop, session.session_id)
            try:
                result = await self._running.stoppable(
                    session.session_id, self._invoke(session, plan, done, seen)
                )
            except SessionStopped:  # before there was a process with a result
                result = CANCELLED
        if seen.outage is not None and result.ok and plan.uses_model:
            # Its words may be an apology; the work is still to be done.
            return replace(result, outcome=Outcome.MCP_UNAVAILABLE, error=seen.outage)
        if seen.limit is not None and not result.ok:
            return replace(result, outcome=Outcome.LIMIT_REACHED, error=seen.limit)
        if plan.uses_model and session.request is not None and session.task is None:
            result = without_false_success(result)
        return replace(result, text=STOPPED) if result.outcome is Outcome.CANCELLED else result

    async def _invoke(
        self,
        session: SessionRequest,
        plan: _Plan,
        done: Sequence[EarlierCall],
        seen: Observed,
    ) -> SessionResult:
        broker = self._deps.broker if plan.uses_model else None
        if broker is not None and (failed := broker.unavailable()) is not None:
            return failed
        total_s = self._deps.config.runtime.timeout_s
        # For a runtime that does not keep its own limits.
        limit = asyncio.timeout(total_s + TOKEN_GRACE_S)
        try:
            async with limit:
                if plan.model is None:
                    result = await self._ask_reflex(session)
                else:
                    result = await self._ask_model(session, plan, plan.model, done)
                changed = seen.changed or bool(done)
                return replace(result, outside=frozenset(seen.outside), changed=changed)
        except TimeoutError:
            if not limit.expired():
                raise  # another limit expired, not the session's
            text = f"The session took longer than {total_s:g} s and was ended."
            return SessionResult(Outcome.TIMED_OUT, text, error=text)

    async def _ask_reflex(self, session: SessionRequest) -> SessionResult:
        """Run a reflex in this process: it needs no address, folder, environment or server of a pack."""
        guard, lifetime_s = self._deps.guard, self._deps.config.runtime.timeout_s + TOKEN_GRACE_S
        with guard.admit(session, lifetime_s=lifetime_s, reads_pages=False) as token:
            live = guard.find(token)
            assert live is not None
            call = partial(self._deps.call, live)
            return await self.reflex.answer(session.prompt, session.request, call)

    async def _ask_model(
        self, session: SessionRequest, plan: _Plan, model: Runtime, done: Sequence[EarlierCall]
    ) -> SessionResult:
        prompt = self._prompt(session, done)
        async with self._deps.skills.for_session(session, plan.access):
            result = await self._ask_warm(session, plan, model, prompt)
            return result or await self._ask_cold(session, plan, model, prompt)

    def _prompt(self, session: SessionRequest, done: Sequence[EarlierCall]) -> str:
        zone = ZoneInfo(self._deps.config.timezone)
        return compose_prompt(session, self._deps.clock.now(), zone, done)

    async def _ask_warm(
        self, session: SessionRequest, plan: _Plan, model: Runtime, prompt: str
    ) -> SessionResult | None:
        """Run the session on a warm process; None if there is none or it cannot be used."""
        if plan.access is not Access.SEALED or session.request is None:
            return None
        pool = self._deps.warm
        ready = await pool.take(model, plan.system_prompt, all_tools=session.tools is None)
        if ready is None:
            return None
        total_s = self._deps.config.runtime.timeout_s
        try:
            limits, lifetime_s = TimeLimits.within(total_s), total_s + TOKEN_GRACE_S
            return await pool.ask(ready, session, prompt, plan.system_prompt, limits, lifetime_s)
        except NotWarm as why:
            log.warning("warm start failed; starting cold", why=str(why))
            return None
        finally:
            await ready.close()

    async def _ask_cold(
        self, session: SessionRequest, plan: _Plan, model: Runtime, prompt: str
    ) -> SessionResult:
        deps, config, broker = self._deps, self._deps.config, self._deps.broker
        total_s = config.runtime.timeout_s
        with ExitStack() as stack:
            token = stack.enter_context(
                deps.guard.admit(session, lifetime_s=total_s + TOKEN_GRACE_S)
            )
            workspace = stack.enter_context(deps.workspaces.open(session.session_id))
            servers = {self._butler: McpServer(f"{deps.url}?{QUERY}={session.session_id}", token)}
            live = deps.guard.find(token)
            assert live is not None
            # A sealed session reads no files: it uses skills through its butler's tools.
            sealed = plan.access is Access.SEALED
            mounted = () if sealed else await deps.skills.mount(workspace.home)
            grants = grants_for(plan.access, config.directory, mounted)
            terms = Terms(
                workspace,
                grants,
                TimeLimits.within(total_s),
                config.runtime.model,
                config.runtime.args,
                session.request,
                brokered=broker is not None,
            )
            outside = session.request is not None
            env = await deps.environment.build(
                model.name, servers, access=plan.access, outside=outside
            )
            if broker is not None:
                model_token = stack.enter_context(reserve_token(broker.broker, env))
                broker.bind(model_token, session.session_id, model.name, plan.access)
                env = dict(model_token.env)
            stack.enter_context(self._guarded_notes(session, live, grants.writable))
            result = await model.invoke(prompt, plan.system_prompt, servers, env, terms)
            return result if live.connected else unreached(result)

    @contextmanager
    def _guarded_notes(
        self, session: SessionRequest, live: LiveSession, files: tuple[Path, ...]
    ) -> Iterator[None]:
        notes, news = self._deps.notes, []
        try:
            with notes.guarded(session, live, files) as news:
                yield
        finally:
            if news:
                self._running.track_task(notes.tell(session, news))

    async def _close(
        self,
        session: SessionRequest,
        plan: _Plan,
        result: SessionResult,
        span: SessionSpan,
        started: float,
    ) -> SessionResult:
        """Write the end to the log. Return the result with the usage that was metered."""
        seconds = time.monotonic() - started
        if plan.uses_model and self._deps.broker is not None:
            result = await self._deps.broker.settle(session.session_id, result)
        elif refused_at_once(result):
            result = replace(result, usage=NO_USAGE)
        if result.outcome in CUT_OFF:
            result = await self._cut_off(session, result)
        cost = self._cost(plan, result)
        span.ended(result, seconds, None if cost is None else float(cost))
        duration_ms = round(seconds * 1000)
        if plan.uses_model:
            self._deps.budget.settle(session.session_id, result, cost)
        close = partial(self._deps.log.close, session.session_id, result, duration_ms, cost)
        try:
            await close()
        except (ButlersError, asyncpg.PostgresError) as error:
            # The session's own outcome matters more than its log.
            log.warning("session log not closed", session=str(session.session_id), error=str(error))
            if isinstance(error, DatabaseUnavailable):
                self._running.track_task(self._close_later(session.session_id, close))
            return result
        log.info(
            "session ended",
            session=str(session.session_id),
            trigger=session.trigger_source,
            runtime=plan.opening.runtime,
            outcome=str(result.outcome),
            duration_ms=duration_ms,
        )
        return result

    async def _cut_off(self, session: SessionRequest, result: SessionResult) -> SessionResult:
        """Tell what a session did that a limit ended."""
        done = [call.tool for call in result.tool_calls if call.ok and not call.of_cli]
        if session.request_id is not None:
            with suppress(ButlersError, asyncpg.PostgresError):
                async with self._deps.database.transaction() as connection:
                    made = await session_log.calls_of_request(connection, session.request_id)
                done = [call.tool for call in made]
        return replace(result, text=cut_off_text(result.error or str(result.outcome), done))

    async def _close_later(self, session_id: UUID, close: Callable[[], Awaitable[None]]) -> None:
        """Close the log when the database is back. If we stop before, the next start closes it."""
        while not await self._running.stops_within(CLOSE_RETRY_S):
            try:
                await close()
            except (ButlersError, asyncpg.PostgresError) as error:
                if not isinstance(error, DatabaseUnavailable):
                    log.warning(
                        "session log never closed", session=str(session_id), error=str(error)
                    )
                    return
            else:
                log.info("session log closed late", session=str(session_id))
                return

    def _cost(self, plan: _Plan, result: SessionResult) -> Decimal | None:
        if not plan.uses_model:
            return None
        if self._deps.broker is not None:
            return result.usage.cost_usd
        return self._deps.budget.cost(result, self._deps.config.runtime.model)
