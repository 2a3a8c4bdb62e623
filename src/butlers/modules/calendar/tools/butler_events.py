"""Tools for butler events: events at which this butler starts a session or runs a job."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Annotated, Any

from pydantic import Field

from butlers.domain.caller import SESSIONS
from butlers.domain.clock import uuid7
from butlers.domain.errors import InvalidArguments, NotAllowed, NotFound
from butlers.domain.schedule import Task
from butlers.modules.calendar.butler_events import (
    EventTiming,
    coming,
    cron_of,
    end_of,
    occurrence_of,
)
from butlers.modules.calendar.model import Occurrence, Window
from butlers.modules.calendar.tools.lookup import shown
from butlers.modules.calendar.words import (
    EventTimes,
    checked,
    local_end,
    moved_start,
    read_rule_words,
    read_times,
)
from butlers.modules.calendar.zones import local_of
from butlers.scheduling import store as schedules
from butlers.scheduling import tasks
from butlers.scheduling.cron import parse
from butlers.scheduling.jobs import find_job
from butlers.scheduling.scheduler import Scheduler
from butlers.scheduling.tasks import TaskChanges
from butlers.tools.context import CallContext, require_trusted_input
from butlers.tools.dates import When, read_when
from butlers.tools.declaration import tool
from butlers.tools.records import keep_schedule_change, schedule_state

EventTitle = Annotated[str, Field(min_length=1, max_length=300)]
ButlerEvent = Annotated[
    str, Field(min_length=1, max_length=300, description="id, or words of its title")
]
Action = Annotated[
    str,
    Field(
        min_length=1,
        max_length=10_000,
        description="name of a job of this butler, or else the prompt of a session",
    ),
]
Repeats = Annotated[str, Field(max_length=300, description='e.g. "every monday", or an RRULE')]
CronWords = Annotated[str, Field(min_length=1, max_length=200, description="instead of a rule")]


@tool(callers=SESSIONS)
async def calendar_create_butler_event(
    ctx: CallContext,
    title: EventTitle,
    start_at: When,
    action: Action,
    action_args: Annotated[dict[str, Any], Field(description="of the job")] | None = None,
    end_at: When | None = None,
    recurrence_rule: Repeats | None = None,
    cron: CronWords | None = None,
    until_at: When | None = None,
    butler_name: Annotated[str, Field(max_length=64)] | None = None,
) -> dict[str, Any]:
    """Create an event at whose start this butler acts: it starts a session with a prompt, or runs a job.

    It is a schedule that the calendar shows. until_at ends a repetition.
    """
    require_trusted_input(ctx, "create a butler event")
    if butler_name not in (None, ctx.butler):
        raise NotAllowed(
            f"an event of {butler_name} is made by that butler", hint="ask that butler to make it"
        )
    times = read_times(ctx, start_at, end_at, all_day=None, timezone=None, minutes=0)
    if times.all_day:
        raise InvalidArguments("a butler event needs a time of day", hint='such as "tomorrow 9:00"')
    minutes = (times.end - times.start) // timedelta(minutes=1)
    timing = _timing(ctx, EventTiming(times.start, minutes), recurrence_rule, cron, until_at)
    scheduler, now = ctx.service(Scheduler), ctx.clock.now()
    made = tasks.new_task(
        f"event {uuid7()}",
        _action(scheduler, action, action_args),
        zone=str(ctx.zone),
        created_by=f"{ctx.caller.kind}:{ctx.caller.name}",
        jobs=scheduler.jobs,
        now=now,
    )
    task = _armed(timing.apply(replace(made, title=title)), now)
    await schedules.create_task(ctx.connection, task)
    await keep_schedule_change(ctx, task.id, None)
    return _answer(ctx, task, "Added")


@tool(callers=SESSIONS)
async def calendar_update_butler_event(
    ctx: CallContext,
    event: ButlerEvent,
    title: EventTitle | None = None,
    start_at: When | None = None,
    end_at: When | None = None,
    recurrence_rule: Repeats | None = None,
    cron: CronWords | None = None,
    until_at: When | None = None,
    action: Action | None = None,
    action_args: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Change a butler event; omitted fields stay. A repeated one moves with recurrence_rule or cron."""
    require_trusted_input(ctx, "change a butler event")
    task, now = await _find(ctx, event), ctx.clock.now()
    scheduler = ctx.service(Scheduler)
    changed = replace(task, title=title or task.title)
    if action is not None or action_args is not None:
        wanted = _action(scheduler, action or task.job_name or "", action_args)
        changed = tasks.changed_task(changed, wanted, jobs=scheduler.jobs, now=now)
    if start_at or end_at or recurrence_rule or cron or until_at:
        timing = _moved(ctx, changed, start_at, end_at, repeats=bool(recurrence_rule or cron))
        timing = _timing(ctx, timing, recurrence_rule, cron, until_at)
        changed = timing.apply(changed)
        changed = _armed(changed, now) if task.enabled else changed
    await _save(ctx, changed)
    return _answer(ctx, changed, "Changed")


@tool(callers=SESSIONS)
async def calendar_delete_butler_event(ctx: CallContext, event: ButlerEvent) -> dict[str, Any]:
    """Delete a butler event with all its coming runs. undo brings it back."""
    require_trusted_input(ctx, "delete a butler event")
    task = await _find(ctx, event)
    before = await schedule_state(ctx.connection, task.id)
    await schedules.delete_task(ctx.connection, task.id)
    await keep_schedule_change(ctx, task.id, before)
    return _answer(ctx, task, "Deleted")


@tool(callers=SESSIONS)
async def calendar_toggle_butler_event(
    ctx: CallContext, event: ButlerEvent, enabled: bool
) -> dict[str, Any]:
    """Pause a butler event, or let it run again. A paused one is not in the calendar."""
    require_trusted_input(ctx, "pause or resume a butler event")
    task, now = await _find(ctx, event), ctx.clock.now()
    changed = tasks.with_enabled(task, enabled, now)
    if enabled:
        changed = _armed(changed, now)
    await _save(ctx, changed)
    return _answer(ctx, changed, "Runs again" if enabled else "Paused")


async def butler_events_in(ctx: CallContext, window: Window) -> list[Occurrence]:
    """Return the coming runs of this butler's events in a window."""
    found = await schedules.list_events(ctx.connection)
    return [one for task in found for one in coming(task, window)]


async def _save(ctx: CallContext, task: Task) -> None:
    before = await schedule_state(ctx.connection, task.id)
    await schedules.change_task(ctx.connection, task)
    await keep_schedule_change(ctx, task.id, before)


async def _find(ctx: CallContext, words: str) -> Task:
    """Return the event of the id or title, locked. Raises if the words fit none, or several."""
    events = await schedules.list_events(ctx.connection)
    plain = words.strip().casefold()
    found = [task for task in events if plain in (str(task.id), (task.title or "").casefold())]
    found = found or [task for task in events if plain in (task.title or "").casefold()]
    if len(found) > 1:
        titles = "; ".join(f"{task.title} ({task.id})" for task in found[:5])
        raise InvalidArguments(f"{words!r} fits several butler events: {titles}", hint="use the id")
    task = await schedules.find_task(ctx.connection, found[0].id, lock=True) if found else None
    if task is None:
        raise NotFound(f"there is no butler event {words!r}", hint="schedule_list shows them")
    return task


def _action(scheduler: Scheduler, action: str, arguments: dict[str, Any] | None) -> TaskChanges:
    if arguments is not None:
        find_job(scheduler.jobs, action)
    if action in scheduler.jobs:
        return TaskChanges(job_name=action, job_args=arguments or {})
    return TaskChanges(prompt=action)


def _timing(
    ctx: CallContext, timing: EventTiming, rule: str | None, cron: str | None, until: str | None
) -> EventTiming:
    """Return the timing with the repetition and end that are asked for."""
    if rule is not None and cron is not None:
        raise InvalidArguments("give either recurrence_rule or cron, not both")
    if cron is not None:
        parse(cron, str(ctx.zone))
        timing = replace(timing, cron=cron)
    if rule is not None:
        text = read_rule_words(rule, timing.start.date())
        timing = replace(timing, cron=cron_of(text, timing.start), until_at=end_of(text, ctx.zone))
    if until is not None:
        if timing.cron is None:
            raise InvalidArguments("only a repeated event has until_at", hint="leave it out")
        timing = replace(timing, until_at=read_when(ctx, until, prefer="future"))
    return timing


def _moved(
    ctx: CallContext, task: Task, start_at: str | None, end_at: str | None, *, repeats: bool
) -> EventTiming:
    """Return the event's timing with another start or end."""
    if task.cron is not None and start_at is not None and not repeats:
        raise InvalidArguments(
            f"{task.title!r} is repeated", hint="give recurrence_rule or cron with start_at"
        )
    start = local_of(_start(task), task.timezone)
    end = start + timedelta(minutes=task.minutes or 0)
    if start_at is not None:
        moved = moved_start(ctx, start_at, start, task.timezone)
        start, end = moved, moved + (end - start)
    if end_at is not None:
        end = local_end(ctx, end_at, start, ctx.zone)
    times = checked(EventTimes(start, end, task.timezone, False))
    minutes = (times.end - times.start) // timedelta(minutes=1)
    return EventTiming(start, minutes, task.cron, task.until_at)


def _start(task: Task) -> datetime:
    start = task.start_at or task.run_at
    assert start is not None
    return start


def _armed(task: Task, now: datetime) -> Task:
    """Return the event with its next run. Raises InvalidArguments if it would never run."""
    armed = tasks.with_next_run(task, now)
    if armed.next_run_at is None:
        raise InvalidArguments(
            f"{task.title!r} would never run: its time has passed", hint="give a later time"
        )
    return armed


def _answer(ctx: CallContext, task: Task, verb: str) -> dict[str, Any]:
    told = shown(ctx, occurrence_of(task, task.next_run_at or _start(task)), [])
    fields = {
        "cron": task.cron,
        "until": task.until_at and task.until_at.astimezone(ctx.zone).isoformat(),
        "prompt": task.prompt,
        "job_name": task.job_name,
    }
    kept = {key: value for key, value in fields.items() if value is not None}
    when = f", {told['when']}" if task.enabled else ""
    return {
        **told,
        **kept,
        "kind": "butler",
        "enabled": task.enabled,
        "text": f"{verb}: {task.title}{when}.",
    }


TOOLS = (
    calendar_create_butler_event,
    calendar_update_butler_event,
    calendar_delete_butler_event,
    calendar_toggle_butler_event,
)
