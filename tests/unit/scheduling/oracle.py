"""Reference implementation of Debian cron: walk every UTC minute of a year and compare local times.

It shares nothing with the code under test: its own parser, its own matching, no cronsim.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

MINUTE = timedelta(minutes=1)
RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))


class Minute(NamedTuple):
    utc: datetime
    hour: int
    minute: int
    again: bool  # the wall has shown this before
    jumped: tuple[tuple[date, int, int], ...] = ()  # local times skipped by the change


@lru_cache(maxsize=8)
def minutes_by_day(zone_name: str, year: int) -> dict[date, list[Minute]]:
    """Yield every minute of the year; look up the zone each quarter hour, between which no clock changes."""
    zone = ZoneInfo(zone_name)
    found: dict[date, list[Minute]] = {}
    utc, end = datetime(year, 1, 1, tzinfo=UTC), datetime(year + 1, 1, 1, tzinfo=UTC)
    expected = furthest = utc.astimezone(zone).replace(tzinfo=None)
    while utc < end:
        wall = utc.astimezone(zone).replace(tzinfo=None, fold=0)
        jumped = _between(expected, wall) if wall > expected else ()
        day, hour, again = found.setdefault(wall.date(), []), wall.hour, wall < furthest
        for minute in range(wall.minute, wall.minute + 15):
            day.append(Minute(utc, hour, minute, again, jumped))
            utc, jumped = utc + MINUTE, ()
        expected = wall + 15 * MINUTE
        furthest = max(furthest, expected)
    return found


def _between(first: datetime, wall: datetime) -> tuple[tuple[date, int, int], ...]:
    jumped = []
    while first < wall:
        jumped.append((first.date(), first.hour, first.minute))
        first += MINUTE
    return tuple(jumped)


@lru_cache(maxsize=8)
def changes(zone_name: str, year: int) -> list[datetime]:
    """Return the UTC minutes at which the zone's offset changes."""
    found, repeating = [], False
    for shown in minutes_by_day(zone_name, year).values():
        for at in shown:
            if at.jumped or (at.again and not repeating):
                found.append(at.utc)
            repeating = at.again
    return found


def firings(expression: str, zone_name: str, year: int) -> list[datetime]:
    fields = expression.split()
    sets = [_values(text, *span) for text, span in zip(fields, RANGES, strict=True)]
    minutes, hours, days, months, weekdays = sets
    weekdays = {day % 7 for day in weekdays}
    both = fields[2].startswith("*") or fields[4].startswith("*")
    fixed = not fields[0].startswith("*") and not fields[1].startswith("*")

    def day_fits(day: date) -> bool:
        by_date, by_week = day.day in days, (day.weekday() + 1) % 7 in weekdays
        return day.month in months and ((by_date and by_week) if both else (by_date or by_week))

    found = []
    for day, shown in minutes_by_day(zone_name, year).items():
        fits = day_fits(day)
        for at in shown:
            hit = fits and at.minute in minutes and at.hour in hours
            if fixed:
                hit = (hit and not at.again) or any(
                    day_fits(left_out) and hour in hours and minute in minutes
                    for left_out, hour, minute in at.jumped
                )
            if hit:
                found.append(at.utc)
    return sorted(found)


def _values(text: str, low: int, high: int) -> set[int]:
    found: set[int] = set()
    for part in text.split(","):
        span, _, step = part.partition("/")
        if span == "*":
            start, end = low, high
        elif "-" in span:
            start, end = (int(number) for number in span.split("-"))
        else:
            start = int(span)
            end = high if step else start
        found.update(range(start, end + 1, int(step or 1)))
    return found
