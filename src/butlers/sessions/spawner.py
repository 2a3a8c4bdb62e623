"""The spawner: takes a slot, opens the log, invokes the runtime, closes the log."""

from __future__ import annotations

import asyncio
import time

import structlog

from butlers.domain.errors import ButlersError, QueueFull
from butlers.domain.faults import kill_point
from butlers.domain.session import Outcome, SessionRequest, SessionResult
from butlers.domain.trace import traceparent_environment
from butlers.runtimes.base import McpServer, Runtime
from butlers.sessions.guard import SessionGuard
from butlers.store import sessions as log_store
from butlers.store.database import Database
from butlers.wire.telemetry import SessionSpan, session_span

log = structlog.get_logger()


class Spawner:
    def __init__(
        self,
        butler: str,
        url: str,
        runtime: Runtime,
        guard: SessionGuard,
        database: Database,
        *,
        max_concurrent: int,
        max_queued: int,
        timeout_s: float,
    ) -> None:
        self.runtime = runtime
        self._butler = butler
        self._url = url
        self._guard = guard
        self._database = database
        self._slots = asyncio.Semaphore(max_concurrent)
        self._max_queued = max_queued
        self._queued = 0
        self._timeout_s = timeout_s

    async def run(self, session: SessionRequest) -> SessionResult:
        await self._take_slot()
        try:
            with session_span(session, butler=self._butler, runtime=self.runtime.name) as span:
                return await self._attend(session, span)
        finally:
            self._slots.release()

    async def _attend(self, session: SessionRequest, span: SessionSpan) -> SessionResult:
        await self._open_log(session)
        started = time.monotonic()
        try:
            result = await self._invoke(session)
        except BaseException as error:
            span.ended(_failure(error), time.monotonic() - started)
            await self._close_log(session, _failure(error), started)
            raise
        span.ended(result, time.monotonic() - started)
        await self._close_log(session, result, started)
        return result

    async def _take_slot(self) -> None:
        if self._slots.locked() and self._queued >= self._max_queued:
            raise QueueFull(f"{self._butler} has {self._queued} sessions waiting already")
        self._queued += 1
        try:
            await self._slots.acquire()
        finally:
            self._queued -= 1

    async def _open_log(self, session: SessionRequest) -> None:
        async with self._database.transaction() as connection:
            await log_store.open_session(connection, session, self.runtime.name)
        kill_point("session.opened")

    async def _invoke(self, session: SessionRequest) -> SessionResult:
        with self._guard.admit(session) as token:
            servers = {self._butler: McpServer(self._url, token)}
            try:
                return await asyncio.wait_for(
                    self.runtime.invoke(
                        session.prompt,
                        session.system_prompt,
                        servers,
                        traceparent_environment(),
                        request=session.request,
                    ),
                    self._timeout_s,
                )
            except TimeoutError:
                text = f"The session took longer than {self._timeout_s:g} s and was ended."
                return SessionResult(Outcome.TIMED_OUT, text, error=text)

    async def _close_log(
        self, session: SessionRequest, result: SessionResult, started: float
    ) -> None:
        duration_ms = round((time.monotonic() - started) * 1000)
        try:
            async with self._database.transaction() as connection:
                await log_store.close_session(connection, session.session_id, result, duration_ms)
        except ButlersError as error:  # the session's own outcome matters more than its log
            log.warning("session log not closed", session=str(session.session_id), error=str(error))
            return
        log.info(
            "session ended",
            session=str(session.session_id),
            trigger=session.trigger_source,
            runtime=self.runtime.name,
            outcome=str(result.outcome),
            duration_ms=duration_ms,
        )


def _failure(error: BaseException) -> SessionResult:
    outcome = Outcome.CANCELLED if isinstance(error, asyncio.CancelledError) else Outcome.CRASHED
    return SessionResult(outcome, "", error=f"{type(error).__name__}: {error}")
