"""Recurrence rules of RFC 5545, expanded within a window.

The work is bounded by the window, never by the rule: a rule without an end, or one that no day fulfills,
costs as much as any other. Times are local; the zone of the event turns them into instants.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from itertools import product
from zoneinfo import ZoneInfo

from butlers.domain.errors import InvalidArguments

MAX_TEXT = 1_000
MAX_VALUES = 400  # in one list of a rule
MAX_INTERVAL = 10_000
MAX_PERIODS = 100_000  # of one expansion: 270 years of days
WEEKDAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")


class Frequency(StrEnum):
    YEARLY = "YEARLY"
    MONTHLY = "MONTHLY"
    WEEKLY = "WEEKLY"
    DAILY = "DAILY"


_LIMITS = {  # smallest and largest value of a list, and whether it may count from the end
    "BYMONTH": (1, 12, False),
    "BYWEEKNO": (1, 53, True),
    "BYYEARDAY": (1, 366, True),
    "BYMONTHDAY": (1, 31, True),
    "BYSETPOS": (1, 366, True),
    "BYHOUR": (0, 23, False),
    "BYMINUTE": (0, 59, False),
    "BYSECOND": (0, 59, False),
}
_KEYS = frozenset(("FREQ", "INTERVAL", "COUNT", "UNTIL", "BYDAY", "WKST", *_LIMITS))


@dataclass(frozen=True, slots=True)
class RecurrenceRule:
    frequency: Frequency
    interval: int = 1
    count: int | None = None
    until: str | None = None  # as written: a date, a local time, or a UTC time
    by_month: frozenset[int] = frozenset()
    by_week: frozenset[int] = frozenset()
    by_year_day: frozenset[int] = frozenset()
    by_month_day: frozenset[int] = frozenset()
    by_day: frozenset[tuple[int, int]] = frozenset()  # ordinal (0: every one) and weekday
    by_position: tuple[int, ...] = ()
    hours: tuple[int, ...] = ()
    minutes: tuple[int, ...] = ()
    seconds: tuple[int, ...] = ()
    week_start: int = 0

    @property
    def names_days(self) -> bool:
        return bool(self.by_week or self.by_year_day or self.by_month_day or self.by_day)

    def anchored(self, start: datetime) -> RecurrenceRule:
        """Return the rule with the days that it takes from the start of its series."""
        if self.names_days or self.frequency is Frequency.DAILY:
            return self
        if self.frequency is Frequency.WEEKLY:
            return replace(self, by_day=frozenset({(0, start.weekday())}))
        months = self.by_month
        if self.frequency is Frequency.YEARLY and not months:
            months = frozenset({start.month})
        return replace(self, by_month=months, by_month_day=frozenset({start.day}))


def read_rule(text: str) -> RecurrenceRule:
    """Return the rule of the text. Raises InvalidArguments for one that cannot be followed."""
    pairs = _pairs(text)
    try:
        frequency = Frequency(pairs.get("FREQ", ""))
    except ValueError:
        raise _refused(f"the frequency {pairs.get('FREQ', '')[:20]!r} is not supported") from None
    lists = {key: _numbers(key, pairs[key]) for key in _LIMITS if key in pairs}
    if "COUNT" in pairs and "UNTIL" in pairs:
        raise _refused("a rule has COUNT or UNTIL, not both")
    return RecurrenceRule(
        frequency,
        interval=_positive("INTERVAL", pairs.get("INTERVAL", "1"), MAX_INTERVAL),
        count=_positive("COUNT", pairs["COUNT"], MAX_PERIODS) if "COUNT" in pairs else None,
        until=_until(pairs.get("UNTIL")),
        by_month=frozenset(lists.get("BYMONTH", ())),
        by_week=frozenset(lists.get("BYWEEKNO", ())),
        by_year_day=frozenset(lists.get("BYYEARDAY", ())),
        by_month_day=frozenset(lists.get("BYMONTHDAY", ())),
        by_day=frozenset(_day(one) for one in _listed(pairs.get("BYDAY"))),
        by_position=tuple(sorted(set(lists.get("BYSETPOS", ())))),
        hours=tuple(sorted(set(lists.get("BYHOUR", ())))),
        minutes=tuple(sorted(set(lists.get("BYMINUTE", ())))),
        seconds=tuple(sorted(set(lists.get("BYSECOND", ())))),
        week_start=_weekday(pairs.get("WKST", "MO")),
    )


def until_instant(until: str, zone: ZoneInfo | None) -> datetime:
    """Return the last allowed start: an instant, or for a series without a zone a local time in UTC.

    A date means its whole day.
    """
    if len(until) == 8:
        local = datetime.combine(_parsed(until, "%Y%m%d").date(), time(23, 59, 59))
    else:
        local = _parsed(until.removesuffix("Z"), "%Y%m%dT%H%M%S")
    if until.endswith("Z") or zone is None:
        return local.replace(tzinfo=UTC)
    return local.replace(tzinfo=zone).astimezone(UTC)


def expand(
    rule: RecurrenceRule, start: datetime, first: datetime, last: datetime
) -> Iterator[datetime]:
    """Yield the local starts of a series from ``first`` through ``last``, in order.

    ``start`` is the local start of the series. UNTIL is not applied: it is an instant, see ``until_instant``.
    """
    anchored, left = rule.anchored(start), rule.count
    for period in _periods(rule, start, first if left is None else start, last):
        for moment in _moments(anchored, start, period):
            if moment < start:
                continue
            if moment > last or left == 0:
                return
            left = None if left is None else left - 1
            if moment >= first:
                yield moment
        if left == 0:
            return


# -- periods and their days ---------------------------------------------------------------------------


def _periods(
    rule: RecurrenceRule, start: datetime, first: datetime, last: datetime
) -> Iterator[date]:
    """Yield the first day of each period of the rule that can hold a start in the window."""
    base = _period_start(rule, start.date())
    distance = _steps(rule.frequency, base, _period_start(rule, max(first, start).date()))
    number = max(0, distance // rule.interval - 1)
    for _ in range(MAX_PERIODS):
        try:
            period = _shifted(rule.frequency, base, number * rule.interval)
        except (OverflowError, ValueError):  # beyond the last year of the calendar
            return
        if period > last.date():
            return
        yield period
        number += 1


def _period_start(rule: RecurrenceRule, day: date) -> date:
    match rule.frequency:
        case Frequency.YEARLY:
            return day.replace(month=1, day=1)
        case Frequency.MONTHLY:
            return day.replace(day=1)
        case Frequency.WEEKLY:
            behind = (day.weekday() - rule.week_start) % 7
            return day - timedelta(days=behind) if day > date.min + timedelta(days=7) else day
    return day


def _steps(frequency: Frequency, base: date, period: date) -> int:
    match frequency:
        case Frequency.YEARLY:
            return period.year - base.year
        case Frequency.MONTHLY:
            return (period.year - base.year) * 12 + period.month - base.month
        case Frequency.WEEKLY:
            return (period - base).days // 7
    return (period - base).days


def _shifted(frequency: Frequency, base: date, steps: int) -> date:
    match frequency:
        case Frequency.YEARLY:
            return base.replace(year=base.year + steps)
        case Frequency.MONTHLY:
            months = base.year * 12 + base.month - 1 + steps
            return date(months // 12, months % 12 + 1, 1)
        case Frequency.WEEKLY:
            return base + timedelta(weeks=steps)
    return base + timedelta(days=steps)


def _moments(rule: RecurrenceRule, start: datetime, period: date) -> list[datetime]:
    """Return the starts of one period, in order."""
    clock = product(
        rule.hours or (start.hour,),
        rule.minutes or (start.minute,),
        rule.seconds or (start.second,),
    )
    times = [time(*one) for one in clock]
    days = [day for day in _days(rule, period) if _matches(rule, day)]
    found = [datetime.combine(day, one) for day in days for one in times]
    if not rule.by_position:
        return found
    chosen = {
        position - 1 if position > 0 else len(found) + position for position in rule.by_position
    }
    return [found[index] for index in sorted(chosen) if 0 <= index < len(found)]


def _days(rule: RecurrenceRule, period: date) -> Iterator[date]:
    match rule.frequency:
        case Frequency.YEARLY:
            for month in sorted(rule.by_month) or range(1, 13):
                yield from _month_days(period.year, month)
        case Frequency.MONTHLY:
            yield from _month_days(period.year, period.month)
        case Frequency.WEEKLY:
            yield from (period + timedelta(days=number) for number in range(7))
        case Frequency.DAILY:
            yield period


def _month_days(year: int, month: int) -> Iterator[date]:
    yield from (date(year, month, day) for day in range(1, _month_length(year, month) + 1))


def _month_length(year: int, month: int) -> int:
    if month == 12:
        return 31
    return (date(year, month + 1, 1) - timedelta(days=1)).day


def _matches(rule: RecurrenceRule, day: date) -> bool:
    return (
        (not rule.by_month or day.month in rule.by_month)
        and (not rule.by_month_day or _month_day(rule, day))
        and (not rule.by_day or _by_day(rule, day))
        and (not rule.by_year_day or _year_day(rule, day))
        and (not rule.by_week or _by_week(rule, day))
    )


def _month_day(rule: RecurrenceRule, day: date) -> bool:
    from_end = day.day - _month_length(day.year, day.month) - 1
    return day.day in rule.by_month_day or from_end in rule.by_month_day


def _year_day(rule: RecurrenceRule, day: date) -> bool:
    number = day.timetuple().tm_yday
    return number in rule.by_year_day or number - _year_length(day.year) - 1 in rule.by_year_day


def _year_length(year: int) -> int:
    return date(year, 12, 31).timetuple().tm_yday


def _by_day(rule: RecurrenceRule, day: date) -> bool:
    weekday = day.weekday()
    if (0, weekday) in rule.by_day:
        return True
    if rule.frequency not in (Frequency.YEARLY, Frequency.MONTHLY):
        return any(wanted == weekday for _, wanted in rule.by_day)
    in_month = rule.frequency is Frequency.MONTHLY or bool(rule.by_month)
    number = day.day if in_month else day.timetuple().tm_yday
    length = _month_length(day.year, day.month) if in_month else _year_length(day.year)
    from_start, from_end = (number - 1) // 7 + 1, -((length - number) // 7 + 1)
    return (from_start, weekday) in rule.by_day or (from_end, weekday) in rule.by_day


def _by_week(rule: RecurrenceRule, day: date) -> bool:
    """Return whether the day is in a named week: its number, or counted from the end of its year."""
    for year in (day.year - 1, day.year, day.year + 1):
        first, following = _first_week(year, rule), _first_week(year + 1, rule)
        if first <= day < following:
            number, total = (day - first).days // 7 + 1, (following - first).days // 7
            return number in rule.by_week or number - total - 1 in rule.by_week
    return False


def _first_week(year: int, rule: RecurrenceRule) -> date:
    """Return the first day of week 1: the first week with at least four days of the year."""
    first = date(min(max(year, 1), 9999), 1, 1)
    ahead = (first.weekday() - rule.week_start) % 7
    return first + timedelta(days=(7 if ahead > 3 else 0) - ahead)


# -- reading ------------------------------------------------------------------------------------------


def _pairs(text: str) -> dict[str, str]:
    plain = text.strip().upper().removeprefix("RRULE:")
    if len(plain) > MAX_TEXT:
        raise _refused("the rule is too long")
    pairs = dict(part.partition("=")[::2] for part in plain.split(";") if part)
    unknown = sorted(set(pairs) - _KEYS)
    if unknown:
        raise _refused(f"{unknown[0][:20]!r} is not supported")
    return pairs


def _listed(text: str | None) -> list[str]:
    found = text.split(",") if text else []
    if len(found) > MAX_VALUES:
        raise _refused("the list is too long")
    return found


def _numbers(key: str, text: str) -> tuple[int, ...]:
    lowest, highest, signed = _LIMITS[key]
    found = tuple(_whole(key, one) for one in _listed(text))
    for number in found:
        if not lowest <= (abs(number) if signed else number) <= highest:
            raise _refused(f"{key} cannot be {number}")
    return found


def _positive(key: str, text: str, highest: int) -> int:
    number = _whole(key, text)
    if not 1 <= number <= highest:
        raise _refused(f"{key} cannot be {number}")
    return number


def _whole(key: str, text: str) -> int:
    digits = text.removeprefix("+").removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 6):
        raise _refused(f"{key} cannot be {text[:20]!r}")
    return int(text)


def _day(text: str) -> tuple[int, int]:
    ordinal = _whole("BYDAY", text[:-2]) if len(text) > 2 else 0
    if abs(ordinal) > 53 or (len(text) > 2 and ordinal == 0):
        raise _refused(f"BYDAY cannot be {text[:20]!r}")
    return ordinal, _weekday(text[-2:])


def _weekday(text: str) -> int:
    if text not in WEEKDAYS:
        raise _refused(f"{text[:20]!r} is no weekday")
    return WEEKDAYS.index(text)


def _until(text: str | None) -> str | None:
    if text is not None:
        until_instant(text, None)
    return text


def _parsed(text: str, shape: str) -> datetime:
    try:
        return datetime.strptime(text, shape)  # noqa: DTZ007  (local time of the series)
    except ValueError:
        raise _refused(f"{text[:20]!r} is no end of a rule") from None


def _refused(why: str) -> InvalidArguments:
    return InvalidArguments(
        f"the repetition cannot be followed: {why}",
        hint='write "every monday", "monthly" or an RRULE such as FREQ=WEEKLY;BYDAY=MO',
    )
