"""The runs of due times: a session for a prompt, a function for a job, and what became of each.

A run comes from the leased queue, so it survives a crash, and it may come twice: its id is the request's
id, and a call that already happened is not made again. Its failure is its own: it is recorded, and the
next due time is not touched by it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import structlog

from butlers.db.database import Connection, Database
from butlers.domain.clock import Clock
from butlers.domain.errors import ButlersError, OverBudget, Postponed, SessionFailed
from butlers.domain.ids import uuid7
from butlers.domain.request import joined
from butlers.domain.schedule import DispatchMode, Run, RunOutcome, Task
from butlers.domain.session import SessionRequest, SessionResult
from butlers.queue import notice_log as told
from butlers.queue.leased_queue import Lease
from butlers.queue.pause import mind_pause
from butlers.scheduling import store as schedules
from butlers.scheduling.jobs import JobContext, Jobs, find_job
from butlers.scheduling.plan import Verdict, judge_late
from butlers.scheduling.post import OWNER, Deliver, delivery, question
from butlers.sessions.spawner import Spawner

log = structlog.get_logger()

WAITED = "waited for a new budget"
STALE = timedelta(minutes=15)  # a run that waited longer than this for its start was missed


@dataclass(frozen=True, slots=True)
class _Due:
    task: Task
    run: Run


class Runner:
    def __init__(
        self,
        butler: str,
        database: Database,
        clock: Clock,
        spawner: Spawner,
        deliver: Deliver,
        jobs: Jobs,
        *,
        timeout_s: float,
        waits_for_budget: bool = True,
    ) -> None:
        self._butler = butler
        self._database = database
        self._clock = clock
        self._spawner = spawner
        self._deliver = deliver
        self._jobs = jobs
        self._timeout_s = timeout_s
        self._waits_for_budget = waits_for_budget

    async def process(self, lease: Lease) -> Any:
        """Work on one due time. What can succeed later goes back to the queue; all else is recorded."""
        due = await self._begin(lease)
        if due is None:
            return None
        try:
            await self._execute(due)
        except OverBudget as error:
            await self._over_budget(due, error)
        except ButlersError as error:
            if error.retryable and not lease.is_last_attempt:
                raise
            await self._fail(due, error.message)
        except Exception as error:  # a loop edge: a job is anybody's code
            log.exception("scheduled run crashed", task=due.task.name)
            await self._fail(due, f"{type(error).__name__}: {error}")
        return {"task": due.task.name, "due_at": due.run.due_at.isoformat()}

    async def _begin(self, lease: Lease) -> _Due | None:
        """The run, marked as started; None when it is no longer wanted, which is written down."""
        now = self._clock.now()
        async with self._database.transaction() as connection:
            run = await schedules.find_run(connection, UUID(lease.payload["run_id"]))
            if run is None or run.outcome is not None:
                return None
            await mind_pause(connection, now)
            task = await schedules.find_task(connection, run.task_id)
            if task is None or not task.enabled:
                what = "deleted" if task is None else "disabled"
                await self._end(connection, run, RunOutcome.SKIPPED, f"the schedule was {what}")
                return None
            start_at = datetime.fromisoformat(lease.payload["start_at"])
            late = now - start_at > STALE and run.detail != WAITED
            verdict = judge_late(task, run.due_at, now) if late else None
            if verdict and verdict.planned.outcome:
                await self._let_go(connection, task, run, verdict)
                return None
            await schedules.begin_run(connection, run.id, now)
        return _Due(task, replace(run, started_at=run.started_at or now))

    async def _let_go(self, connection: Connection, task: Task, run: Run, verdict: Verdict) -> None:
        assert verdict.planned.outcome is not None
        await self._end(connection, run, verdict.planned.outcome, verdict.planned.detail)
        if verdict.question:
            await self._deliver(connection, question(self._butler, task, run, verdict.question))

    async def _execute(self, due: _Due) -> None:
        if due.task.mode is DispatchMode.JOB:
            assert due.task.job_name is not None
            await self._run_job(due, due.task.job_name)
        elif due.task.check_name is None or await self._check(due, due.task.check_name):
            await self._run_session(due)

    async def _run_job(self, due: _Due, name: str) -> None:
        """One transaction: what the job writes and the run's outcome commit together."""
        async with self._database.transaction() as connection:
            result = await self._call(due, name, connection)
            detail = None if result is None else str(result)
            await self._end(connection, due.run, RunOutcome.RAN, detail)

    async def _check(self, due: _Due, name: str) -> bool:
        """Whether there is something to say. If not, that is the run's outcome."""
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
        )
        try:
            async with asyncio.timeout(self._timeout_s):
                return await find_job(self._jobs, name)(context)
        except TimeoutError:
            raise SessionFailed(f"the job {name} took longer than {self._timeout_s:g} s") from None

    async def _run_session(self, due: _Due) -> None:
        session_id = uuid7()
        result = await self._spawner.run(_session(due, session_id))
        run = replace(due.run, session_id=session_id)
        async with self._database.transaction() as connection:
            if due.task.address and result.text and not _notified(result):
                words = delivery(self._butler, due.task.address, run, result.text)
                await self._deliver(connection, words)
            if result.ok:
                await self._end(connection, run, RunOutcome.RAN, None)
            else:
                detail = result.error or result.text or f"the session ended as {result.outcome}"
                await self._end(connection, run, RunOutcome.FAILED, detail)

    async def _over_budget(self, due: _Due, error: OverBudget) -> None:
        """Wait until there is a new budget, or give this due time up; the owner is told once a day."""
        until = error.until if self._waits_for_budget else None
        when = f"it runs after {until:%d %B, %H:%M %Z}" if until else "this run is given up"
        async with self._database.transaction() as connection:
            address = due.task.address or OWNER
            whom, day = joined(address.channel, address.target), error.until or self._clock.now()
            if await told.is_first(connection, told.OVER_BUDGET, whom, day.date()):
                words = f"{due.task.name}: {error}; {when}."
                await self._deliver(connection, delivery(self._butler, address, due.run, words))
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
        said = "; ".join(text for text in (run.detail, detail) if text) or None
        ended = replace(run, outcome=outcome, detail=said, finished_at=self._clock.now())
        await schedules.end_run(connection, ended)
        log.info("scheduled run", task=run.task_name, outcome=str(outcome), detail=said)


def _session(due: _Due, session_id: UUID) -> SessionRequest:
    """Replies go where the task was made from, but each run is a request of its own."""
    request = due.task.request
    if request is not None:
        request = replace(request, request_id=due.run.id, received_at=due.run.due_at)
    return SessionRequest(
        session_id=session_id,
        prompt=due.task.prompt or "",
        trigger_source=due.task.trigger,
        request=request,
        request_id=due.run.id,
    )


def _notified(result: SessionResult) -> bool:
    return any(call.tool == "notify" and call.ok for call in result.tool_calls)
