"""Read a period in a person's words: "this week", "march 2026", "last 30 days", "1 march to 3 march"."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta

from butlers.skills.reflexes.patterns import CompiledTrigger, compile_trigger
from butlers.skills.reflexes.times import MONTH_PATTERN, month_number, read_date, shift_months
from butlers.skills.reflexes.words import english

Days = tuple[date, date]  # first and last day
Found = dict[str, str | None]

FIRST_DAY, LAST_DAY = date(1900, 1, 1), date(2199, 12, 31)
_LEAD_WORDS = ("in ", "during ", "over ", "for ", "the ")


def read_days(text: str, today: date) -> Days | None:
    """Return the first and last day of the period, or None if the words name no period."""
    words = english(" ".join(text.split()).casefold())
    for lead in _LEAD_WORDS:
        words = words.removeprefix(lead)
    try:
        return _read(words, today)
    except (ValueError, OverflowError):
        return None


def _read(words: str, today: date) -> Days | None:
    if words in ("all", "all time", "ever", "always"):
        return FIRST_DAY, LAST_DAY
    for shape, build in _SHAPES:
        found = shape.match(words)
        if found is not None:
            return build(found, today)
    day = read_date(words, today, "past")
    return (day, day) if day else None


def _counted(found: Found, today: date) -> Days:
    """Return "last 30 days" with today as the last of them."""
    count, unit = int(found["count"] or 1), found["unit"] or ""
    if unit.startswith("month"):
        return shift_months(today, -count) + timedelta(days=1), today
    if unit.startswith("year"):
        return shift_months(today, -12 * count) + timedelta(days=1), today
    days = count * (7 if unit.startswith("week") else 1)
    return today - timedelta(days=days - 1), today


def _named(found: Found, today: date) -> Days:
    step = {"this": 0, "last": -1, "previous": -1, "next": 1}[found["which"] or ""]
    match found["unit"]:
        case "week":
            first = today - timedelta(days=today.weekday()) + timedelta(weeks=step)
            return first, first + timedelta(days=6)
        case "weekend":
            first = today - timedelta(days=today.weekday() - 5) + timedelta(weeks=step)
            return first, first + timedelta(days=1)
        case "month":
            first = shift_months(today.replace(day=1), step)
            return first, shift_months(first, 1) - timedelta(days=1)
        case "quarter":
            start = today.replace(month=(today.month - 1) // 3 * 3 + 1, day=1)
            first = shift_months(start, 3 * step)
            return first, shift_months(first, 3) - timedelta(days=1)
        case _:
            return _year(today.year + step)


def _month(found: Found, today: date) -> Days:
    """Return the named month; without a year, the latest one that has begun."""
    number = month_number(found["month"] or "")
    year = int(found["year"] or 0) or (today.year if number <= today.month else today.year - 1)
    first = date(year, number, 1)
    return first, shift_months(first, 1) - timedelta(days=1)


def _numeric_month(found: Found, today: date) -> Days:
    first = date(int(found["year"] or 0), int(found["month"] or 0), 1)
    return first, shift_months(first, 1) - timedelta(days=1)


def _whole_year(found: Found, today: date) -> Days:
    return _year(int(found["year"] or 0))


def _since(found: Found, today: date) -> Days | None:
    first = read_date(found["start"] or "", today, "past")
    return (first, today) if first else None


def _range(found: Found, today: date) -> Days | None:
    first = read_date(found["start"] or "", today, "past")
    last = read_date(found["end"] or "", today, "past")
    return (first, last) if first and last and first <= last else None


def _year(year: int) -> Days:
    return date(year, 1, 1), date(year, 12, 31)


_SHAPES: tuple[tuple[CompiledTrigger, Callable[[Found, date], Days | None]], ...] = (
    (
        compile_trigger(
            r"(?:last|past|previous)\s+(?P<count>\d{1,4})\s+(?P<unit>days?|weeks?|months?|years?)"
        ),
        _counted,
    ),
    (compile_trigger(r"past\s+(?P<count>)(?P<unit>week|month|year)"), _counted),
    (
        compile_trigger(
            r"(?P<which>this|last|previous|next)\s+(?P<unit>week|weekend|month|quarter|year)"
        ),
        _named,
    ),
    (compile_trigger(rf"{MONTH_PATTERN}(?:,?\s+(?P<year>\d{{4}}))?"), _month),
    (compile_trigger(r"(?P<year>\d{4})-(?P<month>\d{2})"), _numeric_month),
    (compile_trigger(r"(?P<year>\d{4})"), _whole_year),
    (compile_trigger(r"since\s+(?P<start>.+)"), _since),
    (
        compile_trigger(
            r"(?:from\s+|between\s+)?(?P<start>.+?)\s+(?:to|until|and|-)\s+(?P<end>.+)"
        ),
        _range,
    ),
)
