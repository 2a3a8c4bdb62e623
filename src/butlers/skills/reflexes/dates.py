"""Days, as people name them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta

from butlers.skills.reflexes.converted import Converted, GroupRule, Moment, Prefer
from butlers.skills.reflexes.patterns import CompiledTrigger, compile_trigger

_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_MONTHS = (
    *("january", "february", "march", "april", "may", "june", "july"),
    *("august", "september", "october", "november", "december"),
)
_WORDS = {
    "today": 0,
    "yesterday": -1,
    "tomorrow": 1,
    "day before yesterday": -2,
    "day after tomorrow": 2,
}

Found = dict[str, str | None]

_WEEKDAY = (
    r"(?P<weekday>mon(?:day)?|tue(?:s|sday)?|wed(?:nesday)?|thu(?:rs?|rsday)?|fri(?:day)?"
    r"|sat(?:urday)?|sun(?:day)?)"
)
_MONTH = (
    r"(?P<month>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?"
    r"|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\.?"
)
_DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
_YEAR = r"(?:,?\s+(?P<year>\d{4}))?"

BARE_WEEKDAY = compile_trigger(rf"(?i)(?:(?:on|this)\s+)?{_WEEKDAY}")


def read_date(text: str, today: date, prefer: Prefer) -> date | None:
    words = " ".join(text.split()).casefold().removeprefix("on ").removeprefix("the ")
    if words in _WORDS:
        return today + timedelta(days=_WORDS[words])
    for shape, build in _SHAPES:
        found = shape.match(words)
        if found is not None:
            return build(found, today, prefer)
    return None


def say_date(day: date, today: date) -> str:
    for word in ("today", "yesterday", "tomorrow"):
        if (day - today).days == _WORDS[word]:
            return word
    year = "" if day.year == today.year else f" {day.year}"
    weekday, month = _WEEKDAYS[day.weekday()][:3].title(), _MONTHS[day.month - 1].title()
    return f"{weekday} {day.day} {month}{year}"


def date_(text: str, rule: GroupRule, moment: Moment) -> Converted | None:
    today = moment.local.date()
    day = read_date(text, today, rule.prefer)
    if day is None:
        return None
    said = say_date(day, today)
    return Converted(day.isoformat(), said, {"text": said})


def _numeric(found: Found, today: date, prefer: Prefer) -> date | None:
    return _day_of(
        int(found["day"] or 0), int(found["month"] or 0), found.get("year"), today, prefer
    )


def _named(found: Found, today: date, prefer: Prefer) -> date | None:
    start = (found["month"] or "")[:3]
    month = next(number for number, name in enumerate(_MONTHS, 1) if name.startswith(start))
    return _day_of(int(found["day"] or 0), month, found["year"], today, prefer)


def _day_of(day: int, month: int, year: str | None, today: date, prefer: Prefer) -> date | None:
    """Without a year, the nearest such day on the preferred side; 29 February may be years away."""
    if year is not None:
        return date(int(year), month, day)
    step = 1 if prefer == "future" else -1
    for candidate in range(today.year, today.year + 9 * step, step):
        found = _existing(candidate, month, day)
        if found is not None and (found - today).days * step >= 0:
            return found
    return None


def _existing(year: int, month: int, day: int) -> date | None:
    try:
        return date(year, month, day)
    except ValueError:
        return None


def _weekday(found: Found, today: date, prefer: Prefer) -> date:
    which, start = found["which"], (found["weekday"] or "")[:3]
    target = next(number for number, name in enumerate(_WEEKDAYS) if name.startswith(start))
    forward = which == "next" or (which != "last" and prefer == "future")
    if forward:
        ahead = (target - today.weekday()) % 7
        return today + timedelta(days=ahead or (7 if which == "next" else 0))
    behind = (today.weekday() - target) % 7
    return today - timedelta(days=behind or (7 if which == "last" else 0))


def _relative(found: Found, today: date, prefer: Prefer) -> date:
    count = 1 if found["count"] in ("a", "one") else int(found["count"] or 0)
    days = count * (7 if (found["unit"] or "").startswith("week") else 1)
    return today + timedelta(days=-days if found.get("ago") else days)


_COUNTED = r"(?P<count>a|one|\d{1,4})\s+(?P<unit>days?|weeks?)"
_SHAPES: tuple[tuple[CompiledTrigger, Callable[[Found, date, Prefer], date | None]], ...] = (
    (compile_trigger(r"(?P<year>\d{4})-(?P<month>\d{2})-(?P<day>\d{2})"), _numeric),
    (compile_trigger(r"(?P<day>\d{1,2})\.\s?(?P<month>\d{1,2})\.\s?(?P<year>\d{4})"), _numeric),
    (compile_trigger(r"(?P<day>\d{1,2})\.\s?(?P<month>\d{1,2})\."), _numeric),
    (compile_trigger(rf"{_DAY}\.?\s+(?:of\s+)?{_MONTH}{_YEAR}"), _named),
    (compile_trigger(rf"{_MONTH}\s+(?:the\s+)?{_DAY}{_YEAR}"), _named),
    (compile_trigger(rf"(?:(?P<which>this|next|last)\s+)?{_WEEKDAY}"), _weekday),
    (compile_trigger(rf"in\s+{_COUNTED}"), _relative),
    (compile_trigger(rf"{_COUNTED}\s+(?P<ago>ago)"), _relative),
)
