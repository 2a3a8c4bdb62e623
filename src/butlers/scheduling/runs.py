"""Runs of due times: a session for a prompt, a function for a job, and the recorded outcome.

A run comes from the leased queue, so it survives a crash and may come twice: its id is the request id, so
a call that already happened is not repeated. A failure is recorded and does not affect the next due time.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import structlog

from butlers.db.database import Connection, Database, set_provenance
from butlers.domain.clock import Clock, uuid7
from butlers.domain.errors import ButlersError, OverBudget, Postponed, SessionFailed
from butlers.domain.message import joined
from butlers.domain.provenance import Provenance
from butlers.domain.schedule import DispatchMode, Run, RunOutcome, Task
from butlers.domain.session import Outcome, SessionRequest, SessionResult
from butlers.queue import notice_log
from butlers.queue.leased_queue import Lease
from butlers.queue.pause import raise_if_paused
from butlers.scheduling import store as schedules
from butlers.scheduling.jobs import JobContext, Jobs, find_job
from butlers.scheduling.messages import OWNER, queue_message
from butlers.scheduling.plan import LateDecision, decide_late
from butlers.sessions.recovery import SessionRecovery
from butlers.sessions.spawner import Spawner

log = structlog.get_logger()

WAITED = "waited for a new budget"
MAX_START_DELAY = timedelta(minutes=15)  # a run that starts later than this was missed


@dataclass(frozen=True, slots=True)
class _Due:
    task: Task
    run: Run


class TaskRunner:
    def __init__(
        self,
        butler: str,
        database: Database,
        clock: Clock,
        spawner: Spawner,
        recovery: SessionRecovery,
        jobs: Jobs,
        *,
        timeout_s: float,
    ) -> None:
        self._butler = butler
        self._database = database
        self._clock = clock
        self._spawner = spawner
        self._recovery = recovery
        self._jobs = jobs
        self._timeout_s = timeout_s

    async def process(self, lease: Lease) -> Any:
        """Process one due time. Raise errors that may succeed later; record all others."""
        due = await self._begin(lease)
        if due is None:
            return None
        try:
            await self._execute(due, lease.attempt)
        except OverBudget as error:
            await self._over_budget(due, error)
        except ButlersError as error:
            if error.retryable and not lease.is_last_attempt:
                raise
            await self._fail(due, error.message)
        except Exception as error:  # loop edge: jobs are user code
            log.exception("scheduled run crashed", task=due.task.name)
            await self._fail(due, f"{type(error).__name__}: {error}")
        return {"task": due.task.name, "due_at": due.run.due_at.isoformat()}

    async def _begin(self, lease: Lease) -> _Due | None:
        """Mark the run as started; record and return None if it must not run."""
        now = self._clock.now()
        async with self._database.transaction() as connection:
            run = await schedules.find_run(connection, UUID(lease.payload["run_id"]))
            if run is None or run.outcome is not None:
                return None
            await raise_if_paused(connection, now)
            task = await schedules.find_task(connection, run.task_id)
            if task is None or not task.enabled:
                what = "deleted" if task is None else "disabled"
                await self._end(connection, run, RunOutcome.SKIPPED, f"the schedule was {what}")
                return None
            start_at = datetime.fromisoformat(lease.payload["start_at"])
            late = now - start_at > MAX_START_DELAY and run.detail != WAITED
            decision = decide_late(task, run.due_at, now) if late else None
            if decision and decision.planned.outcome:
                await self._record_late(connection, task, run, decision)
                return None
            await schedules.begin_run(connection, run.id, now)
        return _Due(task, replace(run, started_at=run.started_at or now))

    async def _record_late(
        self, connection: Connection, task: Task, run: Run, decision: LateDecision
    ) -> None:
        assert decision.planned.outcome is not None
        await self._end(connection, run, decision.planned.outcome, decision.planned.detail)
        if decision.question:
            await queue_message(connection, self._butler, task, run, decision.question)

    async def _execute(self, due: _Due, attempt: int) -> None:
        if due.task.mode is DispatchMode.JOB:
            assert due.task.job_name is not None
            await self._run_job(due, due.task.job_name)
        elif due.task.check_name is None or await self._check(due, due.task.check_name):
            await self._run_session(due, attempt)

    async def _run_job(self, due: _Due, name: str) -> None:
        """Run the job; its writes and the run's outcome commit in one transaction."""
        async with self._database.transaction() as connection:
            sender = f"schedule {due.task.name}"
            await set_provenance(connection, Provenance(due.task.trust, sender, due.run.id))
            result = await self._call(due, name, connection)
            detail = None if result is None else str(result)
            await self._end(connection, due.run, RunOutcome.RAN, detail)

    async def _check(self, due: _Due, name: str) -> bool:
        """Run the check. If it returns a falsy value, record that as the run's outcome."""
        async with self._database.transaction() as connection:
            if await self._call(due, name, connection):
                return True
            detail = f"{name} found nothing"
            await self._end(connection, due.run, RunOutcome.NOTHING_TO_SAY, detail)
        return False

    async def _call(self, due: _Due, name: str, connection: Connection) -> Any:
        context = JobContext(
            butler=self._butler,
            task=due.task.name,
            arguments=due.task.job_args,
            due_at=due.run.due_at,
            run_id=due.run.id,
            clock=self._clock,
            connection=connection,
            zone=ZoneInfo(due.task.timezone),
        )
        try:
            async with asyncio.timeout(self._timeout_s):
                return await find_job(self._jobs, name)(context)
        except TimeoutError:
            raise SessionFailed(f"the job {name} took longer than {self._timeout_s:g} s") from None

    async def _run_session(self, due: _Due, attempt: int) -> None:
        session_id = uuid7()
        result = await self._spawner.run(_session(due, session_id))
        if (
            result.outcome is not Outcome.NO_MATCH
        ):  # without a model a schedule fails; it does not wait
            await self._recovery.handle_run(result, attempt)
        run = replace(due.run, session_id=session_id)
        async with self._database.transaction() as connection:
            if due.task.address and result.text and not _notified(result):
                await queue_message(
                    connection,
                    self._butler,
                    due.task,
                    run,
                    result.text,
                    tainted=bool(result.outside),
                )
            if result.ok:
                await self._end(connection, run, RunOutcome.RAN, None)
            else:
                detail = result.error or result.text or f"the session ended as {result.outcome}"
                await self._end(connection, run, RunOutcome.FAILED, detail)

    async def _over_budget(self, due: _Due, error: OverBudget) -> None:
        """Postpone the run until the next budget, or fail it; notify the recipient once a day."""
        until = error.until if self._recovery.waits_for_budget else None
        when = f"it runs after {until:%d %B, %H:%M %Z}" if until else "this run is canceled"
        async with self._database.transaction() as connection:
            address = due.task.address or OWNER
            whom, day = joined(address.channel, address.target), error.until or self._clock.now()
            if await notice_log.record_notice(connection, notice_log.OVER_BUDGET, whom, day.date()):
                text = f"{due.task.name}: {error}; {when}."
                await queue_message(connection, self._butler, due.task, due.run, text)
            if until is None:
                await self._end(connection, due.run, RunOutcome.FAILED, str(error))
            else:
                await schedules.note_run(connection, due.run.id, WAITED)
        if until is not None:
            raise Postponed(str(error), until)

    async def _fail(self, due: _Due, detail: str) -> None:
        async with self._database.transaction() as connection:
            await self._end(connection, due.run, RunOutcome.FAILED, detail)

    async def _end(
        self, connection: Connection, run: Run, outcome: RunOutcome, detail: str | None
    ) -> None:
        combined = "; ".join(text for text in (run.detail, detail) if text) or None
        ended = replace(run, outcome=outcome, detail=combined, finished_at=self._clock.now())
        await schedules.end_run(connection, ended)
        log.info("scheduled run", task=run.task_name, outcome=str(outcome), detail=combined)


def _session(due: _Due, session_id: UUID) -> SessionRequest:
    """Return the session request: the task's reply address, and the run's own request id."""
    request = due.task.request
    if request is not None:
        request = replace(request, request_id=due.run.id, received_at=due.run.due_at)
    return SessionRequest(
        session_id=session_id,
        prompt=due.task.prompt or "",
        trigger_source=due.task.trigger,
        request=request,
        request_id=due.run.id,
        outside=_untrusted_words(due.task),
    )


def _untrusted_words(task: Task) -> frozenset[str]:
    """Return what taints the session from its start: the prompt of a schedule that others made."""
    return frozenset() if task.is_trusted else frozenset({f"a schedule of {task.maker}"})


def _notified(result: SessionResult) -> bool:
    return any(call.tool == "notify" and call.ok for call in result.tool_calls)
