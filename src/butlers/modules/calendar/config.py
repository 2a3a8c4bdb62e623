"""Configuration of the calendar module: ``[modules.calendar]``."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import time, timedelta
from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from butlers.config.values import ConfigTable
from butlers.domain.json_safe import FrozenDict
from butlers.modules.base import ModuleConfig


class ConflictPolicy(StrEnum):
    SUGGEST = "suggest"  # create nothing, propose free times
    FAIL = "fail"
    ALLOW_OVERLAP = "allow_overlap"


class Conflicts(ConfigTable):
    policy: ConflictPolicy = ConflictPolicy.SUGGEST
    """A new event that overlaps another one: `suggest`, `fail` or `allow_overlap`."""


class WorkingHours(ConfigTable):
    start: time = time(9)
    """Begin of the hours in which free times are proposed."""
    end: time = time(18)
    """Their end."""
    days: Annotated[tuple[Annotated[int, Field(ge=1, le=7)], ...], Field(min_length=1)] = (
        1,
        2,
        3,
        4,
        5,
    )
    """Working days; 1 is Monday."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.start >= self.end:
            raise ValueError("start must be before end")
        return self


class CalendarAccount(ConfigTable):
    kind: Literal["caldav", "ics"]
    """`caldav`, or `ics` for a feed that is only read."""
    url: str
    """Address of the calendar's collection, or of the feed."""
    username: str = ""
    """Name of the login at the server."""
    secret: str | None = None
    """Name of the stored password."""
    shared: bool = False
    """Other people see this calendar: every change by a session waits for your approval."""

    @model_validator(mode="after")
    def _check_secret(self) -> Self:
        if self.kind == "caldav" and not self.secret:
            raise ValueError("a caldav calendar needs secret")
        return self


class CalendarConfig(ModuleConfig):
    provider: str = "local"
    """Name of the calendar that new events are written to: `local`, or a connected account."""
    default_minutes: Annotated[int, Field(ge=1, le=1440)] = 60
    """Length of an event whose end nobody named."""
    addresses: tuple[str, ...] = ()
    """Your own addresses, by which invitations name you."""
    sync_minutes: Annotated[int, Field(ge=1, le=1440)] = 15
    """Time between two synchronizations of each account."""
    accounts: Mapping[str, CalendarAccount] = FrozenDict()
    """Connected calendars by name; `butlers connect caldav` and `butlers connect ics` write them."""
    conflicts: Conflicts = Conflicts()
    working_hours: WorkingHours = WorkingHours()

    @property
    def interval(self) -> timedelta:
        return timedelta(minutes=self.sync_minutes)
