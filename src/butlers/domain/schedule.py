"""Work that is due at a time: the task, when it may run late, and what became of each due time."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any
from uuid import UUID, uuid5

from butlers.domain.errors import InvalidArguments
from butlers.domain.request import RequestContext

MAX_NAME = 200


class DispatchMode(StrEnum):
    PROMPT = "prompt"  # wakes a session
    JOB = "job"  # runs a Python function
    MESSAGE = "message"  # is delivered as it stands, without a model


class TaskSource(StrEnum):
    TOML = "toml"  # declared in butler.toml, which alone may change it
    DB = "db"  # made at run time


class Missed(StrEnum):
    """What happens to a due time that passed while the butler was not there."""

    SKIP = "skip"  # it is recorded, and that is all
    ONCE = "once"  # it is made up for once, however many there were
    ASK = "ask"  # the owner is asked


class RunOutcome(StrEnum):
    RAN = "ran"
    FAILED = "failed"
    MISSED = "missed"  # nobody was there at the time, and it was not made up for
    SKIPPED = "skipped"  # left out on purpose; the run's detail says why
    NOTHING_TO_SAY = "nothing-to-say"  # its check found nothing, so no session was started


class DisabledBy(StrEnum):
    OWNER = "owner"  # stays off until it is switched on
    FILE = "file"  # left butler.toml; comes back with it


@dataclass(frozen=True, slots=True)
class Address:
    """Whom a task speaks to."""

    channel: str
    target: str
    thread: str | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """One scheduled task. ``next_run_at`` is None exactly when it will not run again."""

    id: UUID
    name: str
    mode: DispatchMode
    source: TaskSource
    created_by: str
    cron: str | None = None  # either a cron expression in ``timezone`` …
    run_at: datetime | None = None  # … or one moment
    timezone: str = "UTC"
    prompt: str | None = None
    message: str | None = None
    job_name: str | None = None
    job_args: dict[str, Any] = field(default_factory=dict)
    check_name: str | None = None  # a job that is asked first; a falsy answer spares the session
    missed: Missed = Missed.SKIP
    missed_within_s: float | None = None  # older than that is not made up for; None: no limit
    exact: bool = True  # to the minute; False lets its runs be spread (scheduling/stagger.py)
    address: Address | None = None
    request: RequestContext | None = None
    enabled: bool = True
    disabled_by: DisabledBy | None = None
    next_run_at: datetime | None = None
    last_run_at: datetime | None = None
    last_result: dict[str, Any] | None = None

    @property
    def timing(self) -> tuple[str | None, datetime | None, str]:
        return self.cron, self.run_at, self.timezone

    @property
    def trigger(self) -> str:
        return f"schedule:{self.name}"


@dataclass(frozen=True, slots=True)
class Run:
    """One due time of a task, and what became of it. An open outcome is still being worked on."""

    id: UUID
    task_id: UUID
    task_name: str
    due_at: datetime
    outcome: RunOutcome | None = None
    detail: str | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    session_id: UUID | None = None


def run_id_of(task_id: UUID, due_at: datetime) -> UUID:
    """One due time has one id: it keys the run, its queue item and its calls in the journal."""
    return uuid5(task_id, due_at.astimezone(UTC).isoformat())


def check_name(name: str) -> None:
    if not name.strip():
        raise InvalidArguments("the schedule has no name", hint="give it a short name")
    if len(name) > MAX_NAME:
        raise InvalidArguments(
            f"the schedule's name has {len(name):,} characters; at most {MAX_NAME} are taken",
            hint="put the long part in the prompt",
        )
    if not name.isprintable():
        raise InvalidArguments(
            f"the schedule's name {name!r} contains control characters",
            hint="use letters, digits, spaces and punctuation",
        )
