"""Tools for schedules and reminders."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID
from zoneinfo import ZoneInfo

from pydantic import Field

from butlers.domain.caller import EVERYONE, OWNER_ONLY, SESSIONS
from butlers.domain.errors import InvalidArguments, NotAllowed, NotFound
from butlers.domain.schedule import DisabledBy, Missed, Run, Task, TaskSource
from butlers.scheduling import store as schedules
from butlers.scheduling import tasks
from butlers.scheduling.scheduler import Scheduler
from butlers.scheduling.tasks import TaskChanges
from butlers.tools.context import CallContext, require_trusted_input
from butlers.tools.declaration import Effect, tool
from butlers.tools.records import keep_schedule_change, schedule_state, shown_source

Short = Annotated[str, Field(min_length=1, max_length=200)]
CronText = Annotated[
    str,
    Field(
        min_length=1,
        max_length=200,
        description="minute hour day month weekday, such as '30 8 * * 1-5', or '@daily'",
    ),
]
Zone = Annotated[str, Field(min_length=1, max_length=64, description="IANA; default: the butler's")]
Check = Annotated[
    str,
    Field(max_length=200, description="Job to run first; falsy: no session"),
]
Within = Annotated[
    float,
    Field(gt=0, le=31_622_400, description="Skip older ones"),
]


@tool(callers=EVERYONE, effect=Effect.READ)
async def schedule_list(
    ctx: CallContext,
    include_ended: bool = False,
    reminders_only: bool = False,
    runs: Annotated[int, Field(ge=0, le=50, description="Recent runs")] = 3,
    limit: Annotated[int, Field(ge=1, le=500)] = 100,
    offset: Annotated[int, Field(ge=0, le=1_000_000)] = 0,
) -> dict[str, Any]:
    """List schedules and reminders by next run, with their recent runs."""
    found = await schedules.list_tasks(
        ctx.connection,
        include_ended=include_ended,
        reminders_only=reminders_only,
        limit=limit,
        offset=offset,
    )
    recent = await schedules.recent_runs(ctx.connection, [task.id for task in found], runs)
    return {"schedules": [_shown(ctx, task, recent.get(task.id, [])) for task in found]}


@tool(callers=SESSIONS, keeps_changes=True)
async def schedule_create(
    ctx: CallContext,
    name: Short,
    cron: CronText,
    prompt: str | None = None,
    job_name: Short | None = None,
    job_args: dict[str, Any] | None = None,
    timezone: Zone | None = None,
    check: Check | None = None,
    missed: Missed = Missed.SKIP,
    missed_within_s: Within | None = None,
    exact: bool | None = None,
) -> dict[str, Any]:
    """Create a recurring schedule: start a session with a prompt, or run a job of this butler.

    missed: skip times that passed while the butler was off, run once late, or ask the owner.
    exact: do not spread "*/15" over some minutes.
    """
    require_trusted_input(ctx, "create a schedule")
    changes = TaskChanges(
        cron, timezone, prompt, job_name, job_args, check, missed, missed_within_s, exact
    )
    task = tasks.new_task(
        name,
        changes,
        zone=ctx.services.config.timezone,
        created_by=_caller(ctx),
        jobs=ctx.service(Scheduler).jobs,
        now=ctx.clock.now(),
    )
    await schedules.create_task(ctx.connection, task)
    await keep_schedule_change(ctx, task.id, None)
    return {"id": str(task.id), **_times(task)}


@tool(callers=SESSIONS)
async def schedule_update(
    ctx: CallContext,
    id: UUID,  # noqa: A002  (part of the tool's interface)
    enabled: bool | None = None,
    cron: Short | None = None,
    timezone: Annotated[str, Field(min_length=1, max_length=64)] | None = None,
    prompt: str | None = None,
    job_name: Short | None = None,
    job_args: dict[str, Any] | None = None,
    check: Annotated[str, Field(max_length=200)] | None = None,
    missed: Missed | None = None,
    missed_within_s: Annotated[float, Field(gt=0, le=31_622_400)] | None = None,
    exact: bool | None = None,
    run_now: bool = False,
) -> dict[str, Any]:
    """Change a schedule by its id; omitted arguments stay unchanged, check="" removes the check.

    A schedule of source "toml" can only be enabled, disabled or run now.
    """
    require_trusted_input(ctx, "change a schedule")
    now = ctx.clock.now()
    changes = TaskChanges(
        cron, timezone, prompt, job_name, job_args, check, missed, missed_within_s, exact
    )
    task = await _find(ctx, id)
    task = tasks.changed_task(task, changes, jobs=ctx.service(Scheduler).jobs, now=now)
    if enabled is not None:
        task = tasks.with_enabled(task, enabled, now)
    if run_now:
        task = tasks.due_now(task, now)
    before = await schedule_state(ctx.connection, task.id)
    await schedules.change_task(ctx.connection, task)
    await keep_schedule_change(ctx, task.id, before)
    return {"id": str(task.id), **_times(task)}


@tool(callers=SESSIONS, keeps_changes=True)
async def schedule_delete(
    ctx: CallContext,
    id: UUID,  # noqa: A002  (part of the tool's interface)
) -> dict[str, Any]:
    """Delete a schedule or reminder by its id."""
    require_trusted_input(ctx, "delete a schedule")
    task = await _find(ctx, id)
    if task.source is TaskSource.TOML and task.disabled_by is not DisabledBy.FILE:
        raise NotAllowed(
            f"{task.name!r} is declared in butler.toml and would return at the next start",
            hint="remove it there, or disable it with schedule_update enabled=false",
        )
    before = await schedule_state(ctx.connection, task.id)
    await schedules.delete_task(ctx.connection, task.id)
    await keep_schedule_change(ctx, task.id, before)
    return {"id": str(task.id), "status": "deleted"}


@tool(callers=SESSIONS, keeps_changes=True)
async def remind(
    ctx: CallContext,
    message: str | None = None,
    prompt: str | None = None,
    in_minutes: Annotated[float, Field(gt=0, le=5_270_400)] | None = None,
    at: datetime | None = None,
) -> dict[str, Any]:
    """Remind once, in_minutes or at an ISO time (the butler's zone unless it has an offset): deliver a
    message unchanged, or start a session with a prompt.
    """
    if prompt is not None:  # a fixed message only says what the sender said, to the same person
        require_trusted_input(ctx, "schedule a prompt")
    now, zone = ctx.clock.now(), ctx.services.config.timezone
    task = tasks.new_reminder(
        message=message,
        prompt=prompt,
        run_at=tasks.reminder_time(in_minutes, at, zone=zone, now=now),
        zone=zone,
        created_by=_caller(ctx),
        request=ctx.request,
    )
    await schedules.create_task(ctx.connection, task)
    await keep_schedule_change(ctx, task.id, None)
    return {"id": str(task.id), **_times(task)}


@tool(callers=SESSIONS, keeps_changes=True)
async def reminder_cancel(ctx: CallContext, text: Short) -> dict[str, Any]:
    """Cancel the coming reminder whose message contains the text."""
    found = await schedules.find_reminders(ctx.connection, text)
    if not found:
        raise NotFound(f"no coming reminder contains {text!r}", hint="schedule_list shows them")
    if len(found) > 1:
        said = "; ".join(
            f"“{task.message}” ({_times(task)['next_run_local']})" for task in found[:5]
        )
        raise InvalidArguments(f"{text!r} fits several reminders: {said}", hint="say more of it")
    (task,) = found
    before = await schedule_state(ctx.connection, task.id)
    await schedules.delete_task(ctx.connection, task.id)
    await keep_schedule_change(ctx, task.id, before)
    return {"id": str(task.id), "message": task.message, **_times(task)}


@tool(callers=OWNER_ONLY, effect=Effect.LONG)
async def tick(ctx: CallContext) -> dict[str, Any]:
    """Run due schedules now instead of at the next interval. Returns task names by result."""
    summary = await ctx.service(Scheduler).tick()
    return summary.as_dict()


async def _find(ctx: CallContext, task_id: UUID) -> Task:
    task = await schedules.find_task(ctx.connection, task_id, lock=True)
    if task is None:
        raise NotFound(f"unknown schedule {task_id}", hint="schedule_list shows the ids")
    return task


def _caller(ctx: CallContext) -> str:
    return f"{ctx.caller.kind}:{ctx.caller.name}"


def _shown(ctx: CallContext, task: Task, runs: list[Run]) -> dict[str, Any]:
    # "source" says here whether the schedule is from butler.toml, so its writer has another name.
    written = shown_source(ctx, {"sender": task.sender, "trust": task.trust})
    shown = {
        "id": str(task.id),
        "name": task.name,
        "dispatch_mode": task.mode,
        "source": task.source,
        "cron": task.cron,
        "prompt": task.prompt,
        "message": task.message,
        "job_name": task.job_name,
        "job_args": task.job_args or None,
        "check": task.check_name,
        "missed": task.missed,
        "missed_within_s": task.missed_within_s,
        "exact": task.exact,
        "enabled": task.enabled,
        "disabled_by": task.disabled_by,
        "created_by": task.created_by,
        **_times(task),
        "last_run_at": _iso(task.last_run_at),
        "last_result": task.last_result,
    }
    shown |= {"written_by": written["source"]} if written else {}
    shown |= {"title": task.title, "until_at": _iso(task.until_at)} if task.title else {}
    return shown | {"runs": [_shown_run(run) for run in runs]}


def _shown_run(run: Run) -> dict[str, Any]:
    return {
        "due_at": _iso(run.due_at),
        "outcome": run.outcome,
        "detail": run.detail,
        "session_id": str(run.session_id) if run.session_id else None,
    }


def _times(task: Task) -> dict[str, Any]:
    """Return the next run as ISO time and in local time."""
    local = task.next_run_at and task.next_run_at.astimezone(ZoneInfo(task.timezone))
    return {
        "next_run_at": _iso(task.next_run_at),
        "next_run_local": f"{local:%Y-%m-%d %H:%M}" if local else None,
        "timezone": task.timezone,
    }


def _iso(moment: datetime | None) -> str | None:
    return moment.isoformat() if moment else None


TOOLS = (
    schedule_list,
    schedule_create,
    schedule_update,
    schedule_delete,
    remind,
    reminder_cancel,
    tick,
)
