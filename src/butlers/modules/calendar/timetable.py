"""Busy and free time: conflicts of an event, and free times inside working hours."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from butlers.modules.calendar.config import WorkingHours
from butlers.modules.calendar.model import Occurrence
from butlers.modules.calendar.zones import instant_of

Span = tuple[datetime, datetime]  # begin and end, both instants
STEP = timedelta(minutes=30)
SEARCHED_DAYS = 14
PROPOSALS = 3


def busy_spans(occurrences: Iterable[Occurrence], zone: ZoneInfo) -> list[Span]:
    """Return the merged times that busy events take, in order."""
    spans = sorted(one.instants(zone) for one in occurrences if one.event.busy)
    merged: list[Span] = []
    for start, end in spans:
        if start == end:
            continue
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def free_spans(busy: list[Span], hours: Iterable[Span]) -> list[Span]:
    """Return the parts of the hours that nothing takes."""
    free: list[Span] = []
    for start, end in hours:
        for taken_from, taken_until in busy:
            if taken_until <= start or taken_from >= end:
                continue
            if taken_from > start:
                free.append((start, taken_from))
            start = max(start, taken_until)
        if start < end:
            free.append((start, end))
    return free


def overlapping(
    start: datetime, end: datetime, others: Iterable[Occurrence], zone: ZoneInfo
) -> list[Occurrence]:
    """Return the busy events that overlap a time."""
    found = []
    for one in others:
        begins, ends = one.instants(zone)
        if one.event.busy and begins < end and ends > start:
            found.append(one)
    return found


@dataclass(frozen=True, slots=True)
class WorkingTime:
    """The owner's working hours in a zone."""

    hours: WorkingHours
    zone: ZoneInfo

    def spans(self, first: date, last: date) -> Iterator[Span]:
        """Yield the working hours of each working day."""
        day = first
        while day <= last:
            if day.isoweekday() in self.hours.days:
                yield self._at(day, self.hours.start), self._at(day, self.hours.end)
            day += timedelta(days=1)

    def proposals(self, wanted: Span, busy: list[Span], now: datetime) -> list[Span]:
        """Return up to three free times of the wanted length, nearest to the wanted begin, in order."""
        start, length = wanted[0], wanted[1] - wanted[0]
        day = start.astimezone(self.zone).date()
        around = timedelta(days=SEARCHED_DAYS)
        found = [
            slot
            for free in free_spans(busy, self.spans(day - around, day + around))
            for slot in _slots(free, length)
            if slot[0] >= now
        ]
        nearest = sorted(found, key=lambda slot: (abs(slot[0] - start), slot[0] < start))
        return sorted(nearest[:PROPOSALS])

    def _at(self, day: date, clock: time) -> datetime:
        return instant_of(datetime.combine(day, clock), str(self.zone))


def _slots(free: Span, length: timedelta) -> Iterator[Span]:
    """Yield the times of a length in a free time, at half and full hours."""
    start, end = free
    behind = (start.astimezone(UTC) - datetime.min.replace(tzinfo=UTC)) % STEP
    start += (STEP - behind) % STEP
    while length > timedelta(0) and start + length <= end:
        yield start, start + length
        start += STEP
