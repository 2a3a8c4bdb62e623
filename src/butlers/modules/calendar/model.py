"""Events, their occurrences, and windows of time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import asyncpg

from butlers.modules.calendar.rules import (
    Frequency,
    RecurrenceRule,
    expand,
    read_rule,
    until_instant,
)
from butlers.modules.calendar.zones import instant_of, local_of

OCCURRENCE = "%Y%m%dT%H%M%S"  # local start of an occurrence, behind the id of its series
EDGE = timedelta(days=1)  # more than the difference of any two zones' local times within a window
MAX_SPAN = timedelta(days=366 * 10)  # of one event


@dataclass(frozen=True, slots=True)
class CalendarEvent:
    """One event, series of events, or changed occurrence of a series."""

    id: UUID
    source_id: UUID
    uid: str
    title: str
    start_local: datetime
    end_local: datetime
    zone: str | None = None  # None: all-day, or the local time of whoever looks
    all_day: bool = False
    series_id: UUID | None = None
    recurs_at: datetime | None = None
    description: str | None = None
    location: str | None = None
    rule: str | None = None
    extra_dates: tuple[datetime, ...] = ()
    except_dates: tuple[datetime, ...] = ()
    status: str = "confirmed"
    visibility: str = "default"
    busy: bool = True
    color_id: str | None = None
    organizer: str | None = None
    attendees: tuple[Mapping[str, Any], ...] = ()
    notify_minutes: int | None = None
    sequence: int = 0
    sender: str | None = None  # where it comes from; the database stamps both
    trust: str = "owner"

    @classmethod
    def from_row(cls, row: asyncpg.Record) -> CalendarEvent:
        values = {field.name: row[field.name] for field in fields(cls)}
        for name in ("extra_dates", "except_dates", "attendees"):
            values[name] = tuple(values[name])
        return cls(**values)

    @property
    def starts_at(self) -> datetime:
        return instant_of(self.start_local, self.zone)

    @property
    def ends_at(self) -> datetime:
        return max(instant_of(self.end_local, self.zone), self.starts_at)

    @property
    def duration(self) -> timedelta:
        """The local duration: an event from 9:00 to 17:00 ends at 17:00 on every day."""
        return self.end_local - self.start_local

    @property
    def recurring(self) -> bool:
        return self.rule is not None or bool(self.extra_dates)

    def last_at(self) -> datetime | None:
        """Return the end of the last occurrence; None if there is always another one."""
        if not self.recurring:
            return self.ends_at
        rule = read_rule(self.rule) if self.rule else None
        known = [self.start_local, *self.extra_dates]
        if rule is not None and rule.until is None and rule.count is None:
            return None
        if rule is not None and rule.until is not None:
            zone = ZoneInfo(self.zone) if self.zone else None
            known.append(local_of(until_instant(rule.until, zone), self.zone))
        elif rule is not None:
            last = _last_counted(rule, self.start_local)
            if last is None:
                return None
            known.append(last)
        return instant_of(max(known) + self.duration, self.zone)

    def starts_between(self, first: datetime, last: datetime) -> list[datetime]:
        """Return the local starts of a series from ``first`` to ``last``, without excluded ones."""
        dates = {self.start_local, *self.extra_dates}
        if self.rule is not None:
            rule = read_rule(self.rule)
            limit = _limit(rule, self.zone)
            found = expand(rule, self.start_local, first, last)
            dates |= {one for one in found if limit is None or instant_of(one, self.zone) <= limit}
        return sorted(one for one in dates - set(self.except_dates) if first <= one <= last)

    def occurrence(self, start: datetime) -> Occurrence:
        end = start + self.duration
        starts_at = instant_of(start, self.zone)
        return Occurrence(self, start, end, starts_at, max(instant_of(end, self.zone), starts_at))

    def single(self) -> Occurrence:
        return self.occurrence(self.start_local)


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One time at which an event takes place."""

    event: CalendarEvent
    start: datetime
    end: datetime
    starts_at: datetime
    ends_at: datetime

    @property
    def id(self) -> str:
        """The id that tools take: of the event, with the start if it is one of a series."""
        return (
            f"{self.event.id}@{self.start:{OCCURRENCE}}"
            if self.event.recurring
            else f"{self.event.id}"
        )

    def instants(self, zone: ZoneInfo) -> tuple[datetime, datetime]:
        """Return begin and end; an event without a zone takes place in the given one."""
        if self.event.zone is not None:
            return self.starts_at, self.ends_at
        return tuple(instant_of(one, str(zone)) for one in (self.start, self.end))  # type: ignore[return-value]

    def moved(self, start: datetime, duration: timedelta) -> CalendarEvent:
        """Return the event with the times of another occurrence."""
        return replace(self.event, start_local=start, end_local=start + duration)


@dataclass(frozen=True, slots=True)
class Window:
    """Time from ``start`` up to, but not including, ``end``, as the owner's zone sees it."""

    start: datetime
    end: datetime
    zone: ZoneInfo

    @property
    def local(self) -> tuple[datetime, datetime]:
        """The window in local time written as UTC, in which events without a zone are stored."""
        return tuple(  # type: ignore[return-value]
            local_of(one, str(self.zone)).replace(tzinfo=UTC) for one in (self.start, self.end)
        )

    @property
    def outer(self) -> tuple[datetime, datetime]:
        """Bounds that contain the window in any zone."""
        return self.start - EDGE, self.end + EDGE

    def contains(self, occurrence: Occurrence) -> bool:
        start, end = self.local if occurrence.event.zone is None else (self.start, self.end)
        if occurrence.starts_at == occurrence.ends_at:
            return start <= occurrence.starts_at < end
        return occurrence.starts_at < end and occurrence.ends_at > start


def _limit(rule: RecurrenceRule, zone: str | None) -> datetime | None:
    return until_instant(rule.until, ZoneInfo(zone) if zone else None) if rule.until else None


def _last_counted(rule: RecurrenceRule, start: datetime) -> datetime | None:
    """Return the last start of a counted rule, or None if it is not reached in a hundred years."""
    days = {Frequency.DAILY: 1, Frequency.WEEKLY: 7, Frequency.MONTHLY: 31}.get(rule.frequency, 366)
    years = min(100 * 366, (rule.count or 1) * rule.interval * days + 366)
    try:
        horizon = start + timedelta(days=years)
    except OverflowError:
        return None
    found = list(expand(rule, start, start, horizon))
    return found[-1] if len(found) == rule.count else None
