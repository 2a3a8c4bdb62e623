"""Time expressions in questions: "last spring", "in May 2023", "two weeks ago".

Words are scanned one by one, so the work grows linearly with the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from butlers.modules.memory.items import normalized

MONTHS = (
    "january", "february", "march", "april", "may", "june",
    "july", "august", "september", "october", "november", "december",
)  # fmt: skip
DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
SEASONS = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12}  # first month
UNITS = {"day": 1, "week": 7, "month": 30, "year": 365}
NUMBERS = {
    word: number
    for number, word in enumerate(
        (
            "one",
            "two",
            "three",
            "four",
            "five",
            "six",
            "seven",
            "eight",
            "nine",
            "ten",
            "eleven",
            "twelve",
        ),
        1,
    )
} | {"a": 1, "an": 1, "couple": 2, "few": 3}
RELATIVE = ("last", "this", "next", "past")
OTHER = (
    "today", "yesterday", "tonight", "tomorrow", "ago", "weekend", "recently", "since", "birthday",
    "anniversary", "morning", "evening",
)  # fmt: skip
_PLURAL = {f"{unit}s": unit for unit in UNITS}
_WORDS = frozenset((*MONTHS, *DAYS, *SEASONS, *UNITS, *_PLURAL, *OTHER, "last", "next"))
YEARS = range(1900, 2100)


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """Days from ``start`` up to, but not including, ``end``."""

    start: date
    end: date

    def contains(self, moment: datetime) -> bool:
        return self.start <= moment.date() < self.end

    def near(self, moment: datetime, days: int) -> bool:
        """Return whether the moment lies within the span or up to so many days after it."""
        return self.start <= moment.date() < self.end + timedelta(days=days)

    def bounds(self) -> tuple[datetime, datetime]:
        return _midnight(self.start), _midnight(self.end)


def _midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def mentions_time(words: Sequence[str]) -> bool:
    return any(word in _WORDS or _year(word) for word in words)


def find_span(text: str, now: datetime) -> TimeSpan | None:
    """Return the time that a text names, relative to now, or None."""
    words = normalized(text[:2_000]).split()
    for index, word in enumerate(words):
        before, after = words[:index], words[index + 1 :]
        found = (
            _iso(words[index : index + 3])
            or _month(word, before, after, now.date())
            or _season(word, before, after, now.date())
            or _relative(word, before, now.date())
            or _weekday(word, before, now.date())
        )
        if found:
            return found
    for index, word in enumerate(words):
        if (year := _year(word)) and words[:index][-1:] in (["in"], ["during"], ["of"], ["since"]):
            return TimeSpan(date(year, 1, 1), date(year + 1, 1, 1))
    return None


def _year(word: str | None) -> int | None:
    if word is None or len(word) != 4 or not (word.isascii() and word.isdigit()):
        return None
    return int(word) if int(word) in YEARS else None


def _day_of_month(word: str | None) -> int | None:
    if word is None:
        return None
    digits = word.removesuffix("st").removesuffix("nd").removesuffix("rd").removesuffix("th")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 2):
        return None
    return int(digits) if 1 <= int(digits) <= 31 else None


def _iso(words: Sequence[str]) -> TimeSpan | None:
    if len(words) < 3 or not (year := _year(words[0])):
        return None
    if not all(word.isascii() and word.isdigit() and len(word) == 2 for word in words[1:]):
        return None
    return _one_day(year, int(words[1]), int(words[2]))


def _one_day(year: int, month: int, day: int) -> TimeSpan | None:
    try:
        found = date(year, month, day)
    except ValueError:
        return None
    return TimeSpan(found, found + timedelta(days=1))


def _month(word: str, before: Sequence[str], after: Sequence[str], today: date) -> TimeSpan | None:
    if word not in MONTHS:
        return None
    month = MONTHS.index(word) + 1
    last = before[-1] if before else None
    day = _day_of_month(last if last != "of" else before[-2] if len(before) > 1 else None)
    rest = list(after[:2])
    if day is None and rest and (day := _day_of_month(rest[0])):
        rest = rest[1:]
    year = _year(rest[0]) if rest else None
    # "may" and "march" are words of their own.
    if word in ("may", "march") and not (day or year or last in ("in", "last", "since", "during")):
        return None
    if year is None:
        year = today.year if (month, day or 1) <= (today.month, today.day) else today.year - 1
    if day:
        return _one_day(year, month, day)
    return TimeSpan(date(year, month, 1), _next_month(year, month))


def _next_month(year: int, month: int, count: int = 1) -> date:
    total = year * 12 + month - 1 + count
    return date(total // 12, total % 12 + 1, 1)


def _season(word: str, before: Sequence[str], after: Sequence[str], today: date) -> TimeSpan | None:
    if word not in SEASONS:
        return None
    month = SEASONS[word]
    last = before[-1] if before else ""
    year = _year(after[0]) if after else None
    if year is None:
        if last not in (*RELATIVE, "in", "the", "during", "since"):
            return None
        year = today.year if date(today.year, month, 1) <= today else today.year - 1
        if last == "last" and today < _next_month(year, month, 3):
            year -= 1
    return TimeSpan(date(year, month, 1), _next_month(year, month, 3))


def _relative(word: str, before: Sequence[str], today: date) -> TimeSpan | None:
    day = timedelta(days=1)
    if word == "yesterday":
        return TimeSpan(today - day, today)
    if word in ("today", "tonight"):
        return TimeSpan(today, today + day)
    last = before[-1] if before else ""
    if word == "ago" and len(before) > 1:
        return _ago(before[-2], _PLURAL.get(last, last), today)
    if last not in ("last", "this", "past"):
        return None
    if word == "weekend":
        saturday = today - timedelta(days=(today.weekday() + 2) % 7 or 7)
        return TimeSpan(saturday, saturday + 2 * day)
    return _unit_span(word, last, today) if word in UNITS else None


def _ago(count: str, unit: str, today: date) -> TimeSpan | None:
    number = NUMBERS.get(count) or (
        int(count) if count.isascii() and count.isdigit() and len(count) < 4 else 0
    )
    if not number or unit not in UNITS:
        return None
    middle = today - timedelta(days=number * UNITS[unit])
    slack = timedelta(days=max(1, UNITS[unit] // 2))
    return (
        TimeSpan(middle - slack, middle + slack)
        if unit != "day"
        else TimeSpan(middle, middle + slack)
    )


def _unit_span(unit: str, which: str, today: date) -> TimeSpan:
    day = timedelta(days=1)
    if unit == "day":
        return TimeSpan(today - day, today)
    if unit == "week":
        monday = today - timedelta(days=today.weekday())
        return (
            TimeSpan(monday, monday + 7 * day)
            if which == "this"
            else TimeSpan(monday - 7 * day, monday)
        )
    if unit == "month":
        begin = today.replace(day=1)
        if which == "this":
            return TimeSpan(begin, _next_month(begin.year, begin.month))
        return TimeSpan(_next_month(begin.year, begin.month, -1), begin)
    year = today.year if which == "this" else today.year - 1
    return TimeSpan(date(year, 1, 1), date(year + 1, 1, 1))


def _weekday(word: str, before: Sequence[str], today: date) -> TimeSpan | None:
    if word not in DAYS or not before or before[-1] not in ("last", "on", "this"):
        return None
    back = (today.weekday() - DAYS.index(word)) % 7 or 7
    day = today - timedelta(days=back)
    return TimeSpan(day, day + timedelta(days=1))
