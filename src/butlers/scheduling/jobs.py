"""Jobs: Python functions that a schedule runs, or that check whether a session is needed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from butlers.db.database import Connection
from butlers.domain.clock import Clock
from butlers.domain.errors import InvalidArguments


@dataclass(frozen=True, slots=True)
class JobContext:
    """Argument of a job. Writes on ``connection`` commit together with the run's outcome."""

    butler: str
    task: str
    arguments: Mapping[str, Any]
    due_at: datetime
    run_id: UUID  # unchanged when the run is repeated after a crash
    clock: Clock
    connection: Connection
    zone: ZoneInfo  # of the schedule

    @property
    def today(self) -> date:
        """The date at which the run is due, in the schedule's zone."""
        return self.due_at.astimezone(self.zone).date()


Job = Callable[[JobContext], Awaitable[Any]]
Jobs = Mapping[str, Job]


def find_job(jobs: Jobs, name: str) -> Job:
    if name not in jobs:
        known = f"jobs: {', '.join(sorted(jobs))}" if jobs else "this butler has no jobs"
        raise InvalidArguments(f"unknown job {name!r}", hint=known)
    return jobs[name]
