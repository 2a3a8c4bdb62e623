"""Scheduler: a tick claims due tasks, and a loop ticks whenever a task is due.

The loop and the ``tick`` tool call the same function. Ticks may run concurrently: a due time belongs to
the tick that advanced its task.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import structlog

from butlers.config.butler import ButlerConfig
from butlers.db.database import Connection, Database, set_provenance
from butlers.domain.clock import Clock
from butlers.domain.errors import InvalidArguments
from butlers.domain.faults import kill_point
from butlers.domain.provenance import DAEMON
from butlers.domain.schedule import DispatchMode, Run, RunOutcome, Task, run_id_of
from butlers.queue.listener import Listener
from butlers.queue.loops import repeat
from butlers.scheduling import store as schedules
from butlers.scheduling.jobs import Jobs
from butlers.scheduling.messages import queue_message, reminder_text
from butlers.scheduling.plan import WINDOW, DuePlan, PlannedRun, PlanRules, local, plan
from butlers.scheduling.sync import SyncSummary, sync_toml
from butlers.wire.telemetry import tick_span

log = structlog.get_logger()

BATCH = 100  # due tasks per transaction
RETRY_S = 1.0  # after the database was unavailable
QUEUED = "queued"
ASKED = "asked"


@dataclass(frozen=True, slots=True)
class TickSummary:
    """Result of a tick: task names with their outcome, or "queued" or "asked"."""

    entries: tuple[tuple[str, str], ...] = ()

    def names(self, what: str) -> list[str]:
        return [name for name, result in self.entries if result == what]

    def as_dict(self) -> dict[str, Any]:
        return {what: self.names(what) for what in (QUEUED, *RunOutcome, ASKED) if self.names(what)}


class Scheduler:
    def __init__(
        self,
        config: ButlerConfig,
        database: Database,
        listener: Listener,
        clock: Clock,
        jobs: Jobs,
        *,
        spread: timedelta = WINDOW,
    ) -> None:
        self.jobs = jobs
        self._config = config
        self._database = database
        self._listener = listener
        self._clock = clock
        self._interval = timedelta(seconds=config.scheduler.tick_interval_s)
        self._rules = PlanRules(config.name, max(self._interval, timedelta(minutes=1)), spread)

    async def sync(self) -> SyncSummary:
        """Update the stored schedules to match butler.toml."""
        async with self._database.transaction() as connection:
            await set_provenance(connection, DAEMON)
            summary = await sync_toml(connection, self._config, self._clock.now())
        log.info("schedules synced", **summary.as_dict())
        for schedule in self._config.schedules:
            for job in {schedule.job_name, schedule.check} - {None} - set(self.jobs):
                log.warning("schedule names an unknown job", schedule=schedule.name, job=job)
        return summary

    async def tick(self, now: datetime | None = None) -> TickSummary:
        """Claim every due time once; queue, deliver or record it."""
        now = now or self._clock.now()
        with tick_span(self._config.name):
            async with self._database.transaction() as connection:
                await schedules.end_dead_runs(connection, now)
            entries: list[tuple[str, str]] = []
            # An empty claim means that another tick has claimed the rest.
            while found := await self._claim_batch(now):
                entries += found
            return TickSummary(tuple(entries))

    async def run(self) -> None:
        """Tick forever: when a task is due, after a change, and at each interval."""
        changed = asyncio.Event()
        with self._listener.wakes(schedules.CHANGED, changed):
            every_s = self._interval.total_seconds()
            await repeat(self._tick, "tick", every_s=every_s, retry_s=RETRY_S, wake=changed)

    async def _tick(self) -> float:
        """Tick, and return the seconds until the next tick."""
        await self.tick()
        async with self._database.transaction() as connection:
            due = await schedules.next_due_at(connection)
        if due is None:
            return self._interval.total_seconds()
        return min(max(due - self._clock.now(), timedelta(0)), self._interval).total_seconds()

    async def _claim_batch(self, now: datetime) -> list[tuple[str, str]]:
        """Read, claim, record and queue due tasks in one transaction."""
        entries: list[tuple[str, str]] = []
        async with self._database.transaction() as connection:
            due = await schedules.read_due(connection, now, BATCH)
            claimed = await self._claim(connection, [self._plan(task, now) for task in due])
            running = await schedules.still_running(connection, [made.task.id for made in claimed])
            for made in claimed:
                entries += await self._apply_plan(connection, made, running.get(made.task.id), now)
        kill_point("schedules.ticked")
        return entries

    def _plan(self, task: Task, now: datetime) -> DuePlan:
        try:
            return plan(task, now, self._rules)
        except InvalidArguments as error:  # a zone removed from tzdata, or a manual edit
            assert task.next_run_at is not None
            failed = PlannedRun(task.next_run_at, RunOutcome.FAILED, str(error))
            return DuePlan(task, task.next_run_at, None, (failed,))

    async def _claim(self, connection: Connection, plans: list[DuePlan]) -> list[DuePlan]:
        if not plans:
            return []
        mine = await schedules.claim(
            connection, [(made.task.id, made.claimed, made.next_run_at) for made in plans]
        )
        return [made for made in plans if made.task.id in mine]

    async def _apply_plan(
        self, connection: Connection, made: DuePlan, running: datetime | None, now: datetime
    ) -> list[tuple[str, str]]:
        task = made.task
        entries = []
        for planned in made.due:
            if planned.outcome is None and running is not None:
                why = f"the run of {local(task, running)} had not ended"
                planned = replace(planned, outcome=RunOutcome.SKIPPED, detail=why)
            entries.append((task.name, await self._apply_due_time(connection, task, planned, now)))
        if made.question:
            run = _run(task, made.due[-1])
            await queue_message(connection, self._config.name, task, run, made.question)
            entries.append((task.name, ASKED))
        return entries

    async def _apply_due_time(
        self, connection: Connection, task: Task, planned: PlannedRun, now: datetime
    ) -> str:
        run = _run(task, planned)
        if planned.outcome is None and task.mode is not DispatchMode.MESSAGE:
            await schedules.open_run(connection, run, now + planned.delay, planned.delay)
            return QUEUED
        if planned.outcome is None:
            late = planned.detail is not None
            text = reminder_text(task, run, late=late)
            await queue_message(connection, self._config.name, task, run, text)
            run = replace(run, outcome=RunOutcome.RAN, started_at=now)
        else:
            log.warning(
                "scheduled run did not start",
                task=task.name,
                outcome=run.outcome,
                detail=run.detail,
            )
        await schedules.record_run(connection, replace(run, finished_at=now))
        return str(run.outcome)


def _run(task: Task, planned: PlannedRun) -> Run:
    run_id = run_id_of(task.id, planned.due_at)
    return Run(run_id, task.id, task.name, planned.due_at, planned.outcome, planned.detail)
