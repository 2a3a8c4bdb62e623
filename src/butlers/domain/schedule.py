"""Scheduled tasks: the task, its policy for missed runs, and the outcome of each run."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any
from uuid import UUID, uuid5

from butlers.domain.errors import InvalidArguments
from butlers.domain.message import RequestContext
from butlers.domain.provenance import Trust

MAX_NAME = 200


class DispatchMode(StrEnum):
    PROMPT = "prompt"  # starts a session
    JOB = "job"  # runs a Python function
    MESSAGE = "message"  # delivers a fixed text, without a model


class TaskSource(StrEnum):
    TOML = "toml"  # declared in butler.toml and changed only there
    DB = "db"  # created at run time


class Missed(StrEnum):
    """Policy for a run that was due while the butler did not run."""

    SKIP = "skip"  # only record it
    ONCE = "once"  # run once, however many runs were missed
    ASK = "ask"  # ask the owner


class RunOutcome(StrEnum):
    RAN = "ran"
    FAILED = "failed"
    MISSED = "missed"  # the butler did not run then, and the run was not made up for
    SKIPPED = "skipped"  # on purpose; the run's detail says why
    NOTHING_TO_SAY = "nothing-to-say"  # its check found nothing, so no session was started


class DisabledBy(StrEnum):
    OWNER = "owner"  # stays disabled until the owner enables it
    FILE = "file"  # removed from butler.toml; enabled again when it returns


@dataclass(frozen=True, slots=True)
class Address:
    """Recipient of a task's messages."""

    channel: str
    target: str
    thread: str | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """One scheduled task. ``next_run_at`` is None if, and only if, it will not run again."""

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
    check_name: str | None = (
        None  # a job that runs first; if it returns a falsy value, no session starts
    )
    missed: Missed = Missed.SKIP
    missed_within_s: float | None = None  # older runs are not made up for; None: no limit
    exact: bool = True  # False: runs may be delayed to spread the load
    address: Address | None = None
    request: RequestContext | None = None
    sender: str | None = None  # of the message that made it
    trust: Trust = Trust.OWNER  # of who made or changed it; the database stamps it
    enabled: bool = True
    disabled_by: DisabledBy | None = None
    next_run_at: datetime | None = None
    last_run_at: datetime | None = None
    last_result: dict[str, Any] | None = None
    title: str | None = None  # of a butler event: the calendar shows its coming runs
    minutes: int | None = None  # length of the event there
    start_at: datetime | None = None  # no run before it
    until_at: datetime | None = None  # no run after it

    @property
    def timing(self) -> tuple[str | None, datetime | None, str]:
        return self.cron, self.run_at, self.timezone

    def within(self, due_at: datetime | None) -> datetime | None:
        """Return the due time, or None if the task has ended by then."""
        ended = due_at is not None and self.until_at is not None and due_at > self.until_at
        return None if ended else due_at

    @property
    def is_trusted(self) -> bool:
        return self.trust is Trust.OWNER

    @property
    def maker(self) -> str:
        return self.sender or "an unknown sender"

    @property
    def trigger(self) -> str:
        return f"schedule:{self.name}"


@dataclass(frozen=True, slots=True)
class Run:
    """One due time of a task and its outcome, which is None while the run is in progress."""

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
    """Return the id of a due time: the key of its run, queue item and journaled calls."""
    return uuid5(task_id, due_at.astimezone(UTC).isoformat())


def check_name(name: str) -> None:
    if not name.strip():
        raise InvalidArguments("the schedule has no name", hint="give it a short name")
    if len(name) > MAX_NAME:
        raise InvalidArguments(
            f"the schedule's name has {len(name):,} characters; the limit is {MAX_NAME}",
            hint="put the long text in the prompt",
        )
    if not name.isprintable():
        raise InvalidArguments(
            f"the schedule's name {name!r} contains control characters",
            hint="use letters, digits, spaces and punctuation",
        )
