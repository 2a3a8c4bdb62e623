"""Schedules made and changed at run time: every value is checked before a row is written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from butlers.domain.errors import InvalidArguments, NotAllowed
from butlers.domain.ids import uuid7
from butlers.domain.message import check_storable, check_text
from butlers.domain.request import RequestContext
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
from butlers.scheduling.post import OWNER

FURTHEST = timedelta(days=3660)  # a reminder further off than ten years is a mistake


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a caller wants of a schedule; None leaves it as it is, or at its default."""

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
    name: str, wishes: Wishes, *, zone: str, created_by: str, jobs: Jobs, now: datetime
) -> Task:
    check_name(name)
    if (wishes.prompt is None) == (wishes.job_name is None):
        raise InvalidArguments(
            "a schedule has either a prompt or a job_name",
            hint="a prompt wakes a model; a job runs Python without one",
        )
    blank = Task(
        id=uuid7(),
        name=name,
        mode=DispatchMode.PROMPT,
        source=TaskSource.DB,
        created_by=created_by,
        timezone=zone,
    )
    return _retimed(_with(blank, wishes, jobs), now)


def changed_task(task: Task, wishes: Wishes, *, jobs: Jobs, now: datetime) -> Task:
    """The task with some values replaced; a new timing gives it a new next time."""
    if wishes.any and task.source is TaskSource.TOML:
        raise NotAllowed(
            f"{task.name!r} is declared in butler.toml, which alone may change it",
            hint="change the file and restart; here it can be enabled, disabled or run now",
        )
    if task.cron is None and (wishes.cron or wishes.timezone):
        raise InvalidArguments(
            f"{task.name!r} happens once", hint="delete it, and make another with remind"
        )
    if task.mode is DispatchMode.MESSAGE and (wishes.prompt or wishes.job_name):
        raise InvalidArguments(
            f"{task.name!r} is a reminder", hint="delete it, and make another with remind"
        )
    if wishes.prompt is not None and wishes.job_name is not None:
        raise InvalidArguments("a schedule has either a prompt or a job_name, not both")
    changed = _with(task, wishes, jobs)
    return changed if changed.timing == task.timing else _retimed(changed, now)


def switched(task: Task, enabled: bool, now: datetime) -> Task:
    """On or off. What was due while it was off is not missed: its next time is from now on."""
    if enabled == task.enabled:
        return task
    if not enabled:
        return replace(task, enabled=False, disabled_by=DisabledBy.OWNER, next_run_at=None)
    if task.disabled_by is DisabledBy.FILE:
        raise NotAllowed(
            f"{task.name!r} is no longer in butler.toml", hint="put it back there and restart"
        )
    return _retimed(replace(task, enabled=True, disabled_by=None), now)


def started_now(task: Task, now: datetime) -> Task:
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
            hint="message is delivered as it stands; prompt starts a session at that time",
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
        missed=Missed.ONCE,  # better late than never, and it says that it is late
        address=_address(request),
        request=request,
        next_run_at=run_at,
    )


def reminder_time(
    in_minutes: float | None, at: datetime | None, *, zone: str, now: datetime
) -> datetime:
    """One of the two, ahead of now; a time without an offset is the butler's wall clock."""
    if (in_minutes is None) == (at is None):
        raise InvalidArguments("say when: either in_minutes or at", hint="in_minutes=10")
    try:
        due = now + timedelta(minutes=in_minutes) if in_minutes is not None else _instant(at, zone)
    except OverflowError:
        raise InvalidArguments("that is no time we can reach") from None
    if due <= now:
        raise InvalidArguments(
            f"{due.astimezone(find_zone(zone)):%Y-%m-%d %H:%M} is over",
            hint=f"now it is {now.astimezone(find_zone(zone)):%Y-%m-%d %H:%M} in {zone}",
        )
    if due - now > FURTHEST:
        raise InvalidArguments("that is more than ten years ahead", hint="check the year")
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


def _with(task: Task, wishes: Wishes, jobs: Jobs) -> Task:
    changed = replace(
        task,
        cron=wishes.cron or task.cron,
        timezone=wishes.timezone or task.timezone,
        missed=wishes.missed or task.missed,
        missed_within_s=wishes.missed_within_s or task.missed_within_s,
    )
    if wishes.prompt is not None:
        check_text(wishes.prompt)
        changed = replace(
            changed, mode=DispatchMode.PROMPT, prompt=wishes.prompt, job_name=None, job_args={}
        )
    if wishes.job_name is not None:
        find_job(jobs, wishes.job_name)
        changed = replace(
            changed,
            mode=DispatchMode.JOB,
            job_name=wishes.job_name,
            prompt=None,
            check_name=None,
        )
    return _with_details(changed, wishes, jobs)


def _with_details(task: Task, wishes: Wishes, jobs: Jobs) -> Task:
    if wishes.job_args is not None:
        check_storable("job_args", [json.dumps(wishes.job_args, ensure_ascii=False)])
        task = replace(task, job_args=dict(wishes.job_args))
    if wishes.check is not None:
        if wishes.check and task.mode is not DispatchMode.PROMPT:
            raise InvalidArguments("a check belongs to a prompt", hint="a job can look for itself")
        if wishes.check:
            find_job(jobs, wishes.check)
        task = replace(task, check_name=wishes.check or None)
    if task.cron is not None and (wishes.cron or wishes.exact is not None):
        chosen = parse(task.cron, task.timezone).names_its_minute
        task = replace(task, exact=chosen if wishes.exact is None else wishes.exact)
    return task


def _retimed(task: Task, now: datetime) -> Task:
    """From now on. What happens once keeps its time while that is still to come."""
    if not task.enabled:
        return replace(task, next_run_at=None)
    if task.cron is not None:
        return replace(task, next_run_at=parse(task.cron, task.timezone).next_after(now))
    to_come = task.run_at is not None and task.run_at > now
    return replace(task, next_run_at=task.run_at if to_come else None)
