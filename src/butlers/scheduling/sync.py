"""Update the stored schedules to match butler.toml; keep those made at run time."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime, time
from typing import Any

from butlers.config.butler import ButlerConfig, ScheduleConfig
from butlers.config.document import Problem
from butlers.config.locate import KeyPath
from butlers.db.database import Connection
from butlers.domain.clock import uuid7
from butlers.domain.errors import ButlersError, ConfigInvalid
from butlers.domain.message import check_storable
from butlers.domain.schedule import (
    DisabledBy,
    DispatchMode,
    Missed,
    Task,
    TaskSource,
    check_name,
)
from butlers.scheduling import store as schedules
from butlers.scheduling.cron import parse

CREATED_BY = "butler.toml"


@dataclass(frozen=True, slots=True)
class SyncSummary:
    inserted: int = 0
    updated: int = 0
    unchanged: int = 0
    disabled: int = 0

    def as_dict(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in self.__slots__}


async def sync_toml(connection: Connection, config: ButlerConfig, now: datetime) -> SyncSummary:
    """Insert new schedules, update changed ones, disable removed ones, enable restored ones.

    ``next_run_at`` is recomputed only if the timing changed: the first tick must still find a due time
    that passed while the butler was down.
    """
    declared = _declared(config, now)
    existing = await schedules.lock_tasks(connection, [task.name for task in declared])
    _reject_name_clashes(config, declared, existing)
    inserted = updated = disabled = 0
    for task in declared:
        found = existing.get(task.name)
        if found is None:
            await schedules.create_task(connection, task)
            inserted += 1
        elif (wanted := _merged(found, task)) != found:
            await schedules.change_task(connection, wanted)
            updated += 1
    for name in existing.keys() - {task.name for task in declared}:
        if existing[name].enabled:
            await schedules.change_task(connection, _disabled_by_file(existing[name]))
            disabled += 1
    return SyncSummary(inserted, updated, len(declared) - inserted - updated, disabled)


def _merged(found: Task, declared: Task) -> Task:
    owner_off = found.disabled_by is DisabledBy.OWNER
    keeps_its_time = found.enabled and found.next_run_at and found.timing == declared.timing
    next_run_at = found.next_run_at if keeps_its_time else declared.next_run_at
    return replace(
        declared,
        id=found.id,
        enabled=not owner_off,
        disabled_by=found.disabled_by if owner_off else None,
        next_run_at=None if owner_off else next_run_at,
        last_run_at=found.last_run_at,
        last_result=found.last_result,
    )


def _disabled_by_file(task: Task) -> Task:
    return replace(task, enabled=False, disabled_by=DisabledBy.FILE, next_run_at=None)


def _declared(config: ButlerConfig, now: datetime) -> list[Task]:
    tasks: list[Task] = []
    problems: list[Problem] = []
    for index, schedule in enumerate(config.schedules):
        found = _problems(schedule, config.timezone)
        problems += [_problem(index, key, error) for key, error in found]
        if not found:
            tasks.append(_task(schedule, config.timezone, now))
    if problems:
        raise config.document().invalid(problems)
    return tasks


def _problems(schedule: ScheduleConfig, zone: str) -> list[tuple[str, ButlersError]]:
    checks: dict[str, Callable[[], object]] = {
        "name": lambda: check_name(schedule.name),
        "cron": lambda: parse(schedule.cron, schedule.timezone or zone),
        "prompt": lambda: check_storable("the prompt", [schedule.prompt or ""]),
        "job_name": lambda: check_storable("the job", [schedule.job_name or ""]),
        "check": lambda: check_storable("the check", [schedule.check or ""]),
        "job_args": lambda: _plain(schedule.job_args),
    }
    found = []
    for key, check in checks.items():
        try:
            check()
        except ButlersError as error:
            found.append((key, error))
    return found


def _task(schedule: ScheduleConfig, zone: str, now: datetime) -> Task:
    cron = parse(schedule.cron, schedule.timezone or zone)
    return Task(
        id=uuid7(),
        name=schedule.name,
        mode=DispatchMode(schedule.dispatch_mode),
        source=TaskSource.TOML,
        created_by=CREATED_BY,
        cron=schedule.cron,
        timezone=schedule.timezone or zone,
        prompt=schedule.prompt,
        job_name=schedule.job_name,
        job_args=_plain(schedule.job_args),
        check_name=schedule.check,
        missed=Missed(schedule.missed),
        missed_within_s=schedule.missed_within_s,
        exact=cron.has_chosen_minute,
        next_run_at=cron.next_after(now),
    )


def _plain(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Convert TOML values to JSON values: dates to ISO strings. Reject nan and inf."""
    try:
        text = json.dumps(arguments, default=_iso, allow_nan=False)
    except ValueError:
        raise ConfigInvalid("nan and inf cannot be stored", hint="use a string") from None
    check_storable("the arguments", [text.replace("\\u0000", "\0")])
    plain: dict[str, Any] = json.loads(text)
    return plain


def _iso(value: object) -> str:
    if isinstance(value, date | time):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} is not a TOML value")


def _reject_name_clashes(
    config: ButlerConfig, declared: list[Task], existing: dict[str, Task]
) -> None:
    problems = []
    for index, task in enumerate(declared):
        found = existing.get(task.name)
        if found and found.source is TaskSource.DB:
            message = (
                f"the name {task.name!r} belongs to a schedule made at run time "
                f"(id {found.id}, made by {found.created_by}, cron {found.cron!r})"
            )
            hint = f"rename the one in the file, or delete the other: schedule_delete {found.id}"
            problems.append(_problem(index, "name", ButlersError(message, hint=hint)))
    if problems:
        raise config.document().invalid(problems)


def _problem(index: int, key: str, error: ButlersError) -> Problem:
    path: KeyPath = ("butler", "schedule", index, key)
    return Problem(path, f"butler.schedule[{index}].{key}: {error.message}", error.hint)
