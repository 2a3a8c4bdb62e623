"""Cron expressions in an IANA zone, with Debian cron's rules for clock changes.

cronsim computes local times without a zone; this module converts them to instants. cronsim's own zone
handling loses runs where the clocks move by half an hour: ``*/20 3 * * *`` on Lord Howe Island has no
03:00 and no 03:20 on 4 October 2026. Debian's rules:

- an expression with a fixed minute and hour runs once a day: a skipped time runs right after the change,
  a repeated time runs the first time;
- any other expression (``*`` or ``*/n`` in the minute or hour) follows local time: skipped times do not
  run, repeated times run twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import islice, takewhile
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from butlers.domain.errors import InvalidArguments

if TYPE_CHECKING:
    from collections.abc import Iterator

ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
MAX_EXPRESSION = 200

_FIELDS_HINT = (
    "five fields: minute hour day month weekday, such as '30 8 * * 1-5' or '*/15 * * * *'"
)
_SECOND = timedelta(seconds=1)
_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Cron:
    expression: str  # as it was written
    fields: str  # the equivalent five fields
    zone: ZoneInfo

    @property
    def has_chosen_minute(self) -> bool:
        """True if the author chose the minute: not in '*/15 * * * *' and not in '@daily'."""
        return not self.expression.startswith("@") and not self.fields.startswith("*")

    @property
    def is_fixed(self) -> bool:
        """True for Debian's fixed-time job: neither minute nor hour starts with a star."""
        minute, hour, *_ = self.fields.split()
        return not minute.startswith("*") and not hour.startswith("*")

    def next_after(self, after: datetime) -> datetime:
        """Return the first due time later than ``after``, in UTC."""
        after = after.astimezone(UTC).replace(microsecond=0)
        return self._next_fixed(after) if self.is_fixed else self._next_local(after)

    def times_after(self, after: datetime) -> Iterator[datetime]:
        while True:
            after = self.next_after(after)
            yield after

    def latest(self, after: datetime, until: datetime) -> datetime | None:
        """Return the last due time in (after, until], searching backward so that long gaps are cheap."""
        window = timedelta(minutes=2)
        while True:
            start = max(after, until - window)
            *_, found = (None, *takewhile(lambda due: due <= until, self.times_after(start)))
            if found is not None or start == after:
                return found
            window *= 2

    def count(self, after: datetime, until: datetime, limit: int) -> int:
        """Count the due times in (after, until], up to ``limit``."""
        due = takewhile(lambda due: due <= until, self.times_after(after))
        return sum(1 for _ in islice(due, limit))

    def _next_fixed(self, after: datetime) -> datetime:
        wall = _wall(after, self.zone)
        while True:
            wall = _next_wall(self.fields, wall)
            due = instant_of(wall, self.zone)
            if due > after:  # a repeated hour shows past local times again
                return due

    def _next_local(self, after: datetime) -> datetime:
        """Return the next due time in local time; the offset is constant between clock changes."""
        offset = _offset(after, self.zone)
        while True:
            due = _aware(_next_wall(self.fields, _naive(after + offset)) - offset)
            change = _first_change(self.zone, after, due, offset)
            if change is None:
                return due
            after, offset = change - _SECOND, _offset(change, self.zone)


@lru_cache(maxsize=1024)
def parse(expression: str, zone: str) -> Cron:
    """Parse a cron expression; raise InvalidArguments if it or the zone is invalid or never fires."""
    fields = _five_fields(expression)
    cron = Cron(expression.strip(), fields, find_zone(zone))
    _check_fires(expression, fields)
    return cron


def find_zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    # zoneinfo opens names as files: a folder, a path and a NUL raise different errors.
    except (KeyError, ValueError, OSError):
        raise InvalidArguments(
            f"{name!r} is not a time zone", hint="use an IANA name such as 'Europe/Berlin'"
        ) from None


def instant_of(wall: datetime, zone: ZoneInfo) -> datetime:
    """Return the instant of a local time: the first if repeated, right after the change if skipped."""
    due = wall.replace(tzinfo=zone, fold=0).astimezone(UTC)
    if _wall(due, zone) == wall:
        return due
    wall = wall.replace(microsecond=0)
    before = wall.replace(tzinfo=zone, fold=1).astimezone(UTC)
    return _first_change(zone, before, due, _offset(before, zone)) or due


def _five_fields(expression: str) -> str:
    text = expression.strip()
    if len(text) > MAX_EXPRESSION or not text.isprintable():
        raise InvalidArguments("not a cron expression", hint=_FIELDS_HINT)
    if text.startswith("@"):
        if text.lower() not in ALIASES:
            raise InvalidArguments(
                f"unknown cron alias {text!r}", hint=f"aliases: {', '.join(ALIASES)}"
            )
        return ALIASES[text.lower()]
    fields = text.split()
    if len(fields) in (6, 7):
        raise InvalidArguments(
            f"{text!r} has {len(fields)} fields; seconds are not supported",
            hint=_FIELDS_HINT,
        )
    if len(fields) != 5:
        raise InvalidArguments(f"{text!r} has {len(fields)} fields, not five", hint=_FIELDS_HINT)
    return " ".join(fields)


def _check_fires(expression: str, fields: str) -> None:
    try:
        _next_wall(fields, datetime(2000, 1, 1))  # noqa: DTZ001  (a wall clock has no zone)
    except CronSimError as error:
        if _fields_are_valid(fields):
            raise _never_fires(expression) from None
        raise InvalidArguments(
            f"{expression.strip()!r} is not a cron expression: {str(error).lower()}",
            hint=_FIELDS_HINT,
        ) from None
    except StopIteration:
        raise _never_fires(expression) from None


def _fields_are_valid(fields: str) -> bool:
    """Return True if day and month are valid separately: 30 February is valid syntax but never fires."""
    minute, hour, day, month, weekday = fields.split()
    try:
        for apart in (
            f"{minute} {hour} {day} * {weekday}",
            f"{minute} {hour} * {month} {weekday}",
        ):
            CronSim(apart, datetime(2000, 1, 1))  # noqa: DTZ001
    except CronSimError:
        return False
    return True


def _never_fires(expression: str) -> InvalidArguments:
    return InvalidArguments(
        f"{expression.strip()!r} never fires: these months have no such day",
        hint="'0 9 L * *' is the last day of every month",
    )


def _next_wall(fields: str, wall: datetime) -> datetime:
    return next(CronSim(fields, wall))


def _wall(instant: datetime, zone: ZoneInfo) -> datetime:
    return instant.astimezone(zone).replace(tzinfo=None, fold=0)


def _naive(instant: datetime) -> datetime:
    return instant.replace(tzinfo=None)


def _aware(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC)


def _offset(instant: datetime, zone: ZoneInfo) -> timedelta:
    return instant.astimezone(zone).utcoffset() or timedelta(0)


def _first_change(
    zone: ZoneInfo, after: datetime, until: datetime, offset: timedelta
) -> datetime | None:
    """Return the first instant in (after, until] with another offset, in whole seconds, or None."""
    low = after
    while low < until:
        high = min(low + _DAY, until)
        if _offset(high, zone) != offset:
            return _bisect(zone, low, high, offset)
        low = high
    return None


def _bisect(zone: ZoneInfo, low: datetime, high: datetime, offset: timedelta) -> datetime:
    while high - low > _SECOND:
        middle = low + timedelta(seconds=(high - low) // _SECOND // 2)
        low, high = (low, middle) if _offset(middle, zone) != offset else (middle, high)
    return high
