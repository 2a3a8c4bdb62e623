"""Due times of the doses of a medication: pure computation in local time, right at clock changes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from fractions import Fraction
from zoneinfo import ZoneInfo

from butlers.domain.errors import InvalidArguments

WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_NAMED_TIMES = {
    "morning": "08:00",
    "noon": "12:00",
    "evening": "20:00",
    "night": "22:00",
    "bedtime": "22:00",
}


@dataclass(frozen=True, slots=True)
class DoseSchedule:
    """Times of day on certain days. Without times a medication is taken as needed."""

    times: tuple[time, ...]
    starts_on: date
    ends_on: date | None = None
    every_days: int = 1
    weekdays: frozenset[int] = frozenset()  # empty: every day

    def falls_on(self, day: date) -> bool:
        if day < self.starts_on or (self.ends_on is not None and day > self.ends_on):
            return False
        if self.weekdays and day.weekday() not in self.weekdays:
            return False
        return (day - self.starts_on).days % self.every_days == 0

    def slots(self, first: date, last: date, zone: ZoneInfo) -> list[datetime]:
        """Return the instants of all doses from the first to the last day, in order."""
        start = max(first, self.starts_on)
        end = min(last, self.ends_on) if self.ends_on else last
        days = (start + timedelta(days=number) for number in range((end - start).days + 1))
        return [
            instant(day, clock, zone) for day in days if self.falls_on(day) for clock in self.times
        ]

    @property
    def per_day(self) -> Fraction:
        """Average number of doses per day."""
        days = Fraction(len(self.weekdays), 7) if self.weekdays else Fraction(1, self.every_days)
        return len(self.times) * days

    @property
    def text(self) -> str:
        if not self.times:
            return "as needed"
        clocks = " and ".join(f"{clock:%H:%M}" for clock in self.times)
        if self.weekdays:
            return (
                f"{clocks} on {', '.join(WEEKDAYS[day].title() for day in sorted(self.weekdays))}"
            )
        return (
            f"{clocks} daily" if self.every_days == 1 else f"{clocks} every {self.every_days} days"
        )


def instant(day: date, clock: time, zone: ZoneInfo) -> datetime:
    """Return the instant of a local time. A time that a clock change skips moves forward."""
    local = datetime.combine(day, clock, tzinfo=zone)
    return local.astimezone(UTC).astimezone(zone)


def read_times(written: list[str]) -> tuple[time, ...]:
    """Return the times of day in order. Raises InvalidArguments for words that are none."""
    return tuple(sorted({_read_time(words) for words in written}))


def _read_time(words: str) -> time:
    text = _NAMED_TIMES.get(words.strip().casefold(), words.strip())
    hour, mark, minute = text.partition(":")
    try:
        return time(int(hour), int(minute) if mark else 0)
    except ValueError:
        raise InvalidArguments(
            f"{words!r} is not a time of day", hint='write "08:00", "20:30", "morning" or "evening"'
        ) from None


def read_weekdays(written: list[str]) -> frozenset[int]:
    found = set()
    for words in written:
        short = words.strip().casefold()[:3]
        if short not in WEEKDAYS:
            raise InvalidArguments(f"{words!r} is not a weekday", hint='write "mon" or "friday"')
        found.add(WEEKDAYS.index(short))
    return frozenset(found) if len(found) < len(WEEKDAYS) else frozenset()
