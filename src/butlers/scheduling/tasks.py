"""Create and change schedules at run time; validate every value."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from butlers.domain.clock import uuid7
from butlers.domain.errors import InvalidArguments, NotAllowed
from butlers.domain.message import RequestContext, check_storable, check_text
from butlers.domain.schedule import (
    Address,
    DisabledBy,
    DispatchMode,
    Missed,
    Task,
    TaskSource,
    check_name,
)
from butlers.scheduling.cron import find_zone, instant_of, parse
from butlers.scheduling.jobs import Jobs, find_job
from butlers.scheduling.messages import OWNER

MAX_AHEAD = timedelta(days=3660)  # ten years; later is probably a mistake


@dataclass(frozen=True, slots=True)
class TaskChanges:
    """Requested values of a schedule; None keeps the current value or the default."""

    cron: str | None = None
    timezone: str | None = None
    prompt: str | None = None
    job_name: str | None = None
    job_args: Mapping[str, Any] | None = None
    check: str | None = None  # "" removes it
    missed: Missed | None = None
    missed_within_s: float | None = None
    exact: bool | None = None

    @property
    def any(self) -> bool:
        return any(getattr(self, name) is not None for name in self.__slots__)


def new_task(
    name: str, changes: TaskChanges, *, zone: str, created_by: str, jobs: Jobs, now: datetime
) -> Task:
    check_name(name)
    if (changes.prompt is None) == (changes.job_name is None):
        raise InvalidArguments(
            "a schedule has either a prompt or a job_name",
            hint="a prompt starts a session; a job runs Python without a model",
        )
    blank = Task(
        id=uuid7(),
        name=name,
        mode=DispatchMode.PROMPT,
        source=TaskSource.DB,
        created_by=created_by,
        timezone=zone,
    )
    return with_next_run(_with(blank, changes, jobs), now)


def changed_task(task: Task, changes: TaskChanges, *, jobs: Jobs, now: datetime) -> Task:
    """Return the task with changed values; a changed timing recomputes the next run."""
    if changes.any and task.source is TaskSource.TOML:
        raise NotAllowed(
            f"{task.name!r} is declared in butler.toml and can only be changed there",
            hint="edit the file and restart; this tool can enable, disable or run it",
        )
    if task.cron is None and (changes.cron or changes.timezone):
        raise InvalidArguments(
            f"{task.name!r} runs once", hint="delete it and create another with remind"
        )
    if task.mode is DispatchMode.MESSAGE and (changes.prompt or changes.job_name):
        raise InvalidArguments(
            f"{task.name!r} is a reminder", hint="delete it and create another with remind"
        )
    if changes.prompt is not None and changes.job_name is not None:
        raise InvalidArguments("a schedule has either a prompt or a job_name, not both")
    changed = _with(task, changes, jobs)
    return changed if changed.timing == task.timing else with_next_run(changed, now)


def with_enabled(task: Task, enabled: bool, now: datetime) -> Task:
    """Return the task enabled or disabled. Due times while disabled are not missed."""
    if enabled == task.enabled:
        return task
    if not enabled:
        return replace(task, enabled=False, disabled_by=DisabledBy.OWNER, next_run_at=None)
    if task.disabled_by is DisabledBy.FILE:
        raise NotAllowed(
            f"{task.name!r} is no longer in butler.toml",
            hint="add it to the file again and restart",
        )
    return with_next_run(replace(task, enabled=True, disabled_by=None), now)


def due_now(task: Task, now: datetime) -> Task:
    if not task.enabled:
        raise NotAllowed(f"{task.name!r} is disabled", hint="enable it first")
    return replace(task, next_run_at=now)


def new_reminder(
    *,
    message: str | None,
    prompt: str | None,
    run_at: datetime,
    zone: str,
    created_by: str,
    request: RequestContext | None,
) -> Task:
    if (message is None) == (prompt is None):
        raise InvalidArguments(
            "a reminder has either a message or a prompt",
            hint="message is delivered unchanged; prompt starts a session at that time",
        )
    check_text(message or prompt or "")
    task_id = uuid7()
    return Task(
        id=task_id,
        name=f"reminder {task_id}",
        mode=DispatchMode.PROMPT if message is None else DispatchMode.MESSAGE,
        source=TaskSource.DB,
        created_by=created_by,
        run_at=run_at,
        timezone=zone,
        prompt=prompt,
        message=message,
        missed=Missed.ONCE,  # delivered late, with a note that it is late
        address=_address(request),
        request=request,
        next_run_at=run_at,
    )


def reminder_time(
    in_minutes: float | None, at: datetime | None, *, zone: str, now: datetime
) -> datetime:
    """Return the reminder's time, which must be in the future.

    Exactly one argument must be given. A time without an offset is in the butler's zone.
    """
    if (in_minutes is None) == (at is None):
        raise InvalidArguments("give either in_minutes or at", hint="in_minutes=10")
    try:
        due = now + timedelta(minutes=in_minutes) if in_minutes is not None else _instant(at, zone)
    except OverflowError:
        raise InvalidArguments("the time is out of range") from None
    if due <= now:
        raise InvalidArguments(
            f"{due.astimezone(find_zone(zone)):%Y-%m-%d %H:%M} is in the past",
            hint=f"it is now {now.astimezone(find_zone(zone)):%Y-%m-%d %H:%M} in {zone}",
        )
    if due - now > MAX_AHEAD:
        raise InvalidArguments("the time is more than ten years ahead", hint="check the year")
    return due


def _instant(at: datetime | None, zone: str) -> datetime:
    assert at is not None
    return instant_of(at, find_zone(zone)) if at.tzinfo is None else at.astimezone(UTC)


def _address(request: RequestContext | None) -> Address:
    if request is None:
        return OWNER
    return Address(
        request.source_channel, request.source_endpoint_identity, request.source_thread_identity
    )


def _with(task: Task, changes: TaskChanges, jobs: Jobs) -> Task:
    changed = replace(
        task,
        cron=changes.cron or task.cron,
        timezone=changes.timezone or task.timezone,
        missed=changes.missed or task.missed,
        missed_within_s=changes.missed_within_s or task.missed_within_s,
    )
    if changes.prompt is not None:
        check_text(changes.prompt)
        changed = replace(
            changed, mode=DispatchMode.PROMPT, prompt=changes.prompt, job_name=None, job_args={}
        )
    if changes.job_name is not None:
        find_job(jobs, changes.job_name)
        changed = replace(
            changed,
            mode=DispatchMode.JOB,
            job_name=changes.job_name,
            prompt=None,
            check_name=None,
        )
    return _with_details(changed, changes, jobs)


def _with_details(task: Task, changes: TaskChanges, jobs: Jobs) -> Task:
    if changes.job_args is not None:
        check_storable("job_args", [json.dumps(changes.job_args, ensure_ascii=False)])
        task = replace(task, job_args=dict(changes.job_args))
    if changes.check is not None:
        if changes.check and task.mode is not DispatchMode.PROMPT:
            raise InvalidArguments(
                "only a prompt can have a check", hint="let the job check by itself"
            )
        if changes.check:
            find_job(jobs, changes.check)
        task = replace(task, check_name=changes.check or None)
    if task.cron is not None and (changes.cron or changes.exact is not None):
        chosen = parse(task.cron, task.timezone).has_chosen_minute
        task = replace(task, exact=chosen if changes.exact is None else changes.exact)
    return task


def with_next_run(task: Task, now: datetime) -> Task:
    """Return the task with its next run after ``now``. A one-time task keeps a future time."""
    if not task.enabled:
        return replace(task, next_run_at=None)
    if task.cron is not None:
        after = max(now, task.start_at - timedelta(seconds=1)) if task.start_at else now
        due_at = parse(task.cron, task.timezone).next_after(after)
        return replace(task, next_run_at=task.within(due_at))
    to_come = task.run_at is not None and task.run_at > now
    return replace(task, next_run_at=task.run_at if to_come else None)
