"""Convert dates, times of day, instants and durations."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

from butlers.skills.reflexes.patterns import CompiledTrigger, compile_trigger
from butlers.skills.reflexes.values import Converted, GroupRule, Moment, Prefer
from butlers.skills.reflexes.words import english

_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_MONTHS = (
    *("january", "february", "march", "april", "may", "june", "july"),
    *("august", "september", "october", "november", "december"),
)
_DAY_WORDS = {
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
MONTH_PATTERN = (
    r"(?P<month>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?"
    r"|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\.?"
)
_DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
_YEAR = r"(?:,?\s+(?P<year>\d{4}))?"

BARE_WEEKDAY = compile_trigger(rf"(?i)(?:(?:on|this)\s+)?{_WEEKDAY}")


def read_date(text: str, today: date, prefer: Prefer) -> date | None:
    words = _folded(text).removeprefix("on ").removeprefix("the ")
    if words in _DAY_WORDS:
        return today + timedelta(days=_DAY_WORDS[words])
    for shape, build in _SHAPES:
        found = shape.match(words)
        if found is not None:
            return build(found, today, prefer)
    return None


def _folded(text: str) -> str:
    return english(" ".join(text.split()).casefold())


def format_date(day: date, today: date) -> str:
    for word in ("today", "yesterday", "tomorrow"):
        if (day - today).days == _DAY_WORDS[word]:
            return word
    year = "" if day.year == today.year else f" {day.year}"
    weekday, month = _WEEKDAYS[day.weekday()][:3].title(), _MONTHS[day.month - 1].title()
    return f"{weekday} {day.day} {month}{year}"


def convert_date(text: str, rule: GroupRule, moment: Moment) -> Converted | None:
    today = moment.local.date()
    day = read_date(text, today, rule.prefer)
    if day is None:
        return None
    display = format_date(day, today)
    return Converted(day.isoformat(), display, {"text": display})


def _numeric(found: Found, today: date, prefer: Prefer) -> date | None:
    return _day_of(
        int(found["day"] or 0), int(found["month"] or 0), found.get("year"), today, prefer
    )


def _named(found: Found, today: date, prefer: Prefer) -> date | None:
    month = month_number(found["month"] or "")
    return _day_of(int(found["day"] or 0), month, found["year"], today, prefer)


def month_number(name: str) -> int:
    """Return the number of a month that ``MONTH_PATTERN`` matched."""
    return next(number for number, full in enumerate(_MONTHS, 1) if full.startswith(name[:3]))


def _day_of(day: int, month: int, year: str | None, today: date, prefer: Prefer) -> date | None:
    """Return the date; without a year, the nearest one in the preferred direction.

    The next 29 February may be eight years away.
    """
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


def _day_of_month(found: Found, today: date, prefer: Prefer) -> date | None:
    """Return "the 1st": the nearest such day in the preferred direction, in a month that has it."""
    day, step = int(found["day"] or 0), 1 if prefer == "future" else -1
    for month in range(13):
        first = shift_months(today.replace(day=1), step * month)
        found_day = _existing(first.year, first.month, day)
        if found_day is not None and (found_day - today).days * step >= 0:
            return found_day
    return None


def _relative_date(found: Found, today: date, prefer: Prefer) -> date:
    count, unit = int(_COUNT_OF.get(found["count"] or "", found["count"] or "0")), found["unit"]
    count = -count if found.get("ago") else count
    match (unit or "").removesuffix("s"):
        case "day" | "week" as size:
            return today + timedelta(days=count * (7 if size == "week" else 1))
        case size:
            return shift_months(today, count * (12 if size == "year" else 1))


def shift_months(day: date, months: int) -> date:
    """Return the same day some months later; a day that the month lacks becomes its last one."""
    year, month = divmod(day.year * 12 + day.month - 1 + months, 12)
    following = date(year + (month == 11), (month + 1) % 12 + 1, 1)
    return date(year, month + 1, min(day.day, (following - timedelta(days=1)).day))


_COUNTED = (
    r"(?P<count>a|one|two|three|four|five|six|seven|eight|nine|ten|\d{1,4})"
    r"\s+(?P<unit>days?|weeks?|months?|years?)"
)
_SHAPES: tuple[tuple[CompiledTrigger, Callable[[Found, date, Prefer], date | None]], ...] = (
    (compile_trigger(r"(?P<year>\d{4})-(?P<month>\d{2})-(?P<day>\d{2})"), _numeric),
    (compile_trigger(r"(?P<day>\d{1,2})\.\s?(?P<month>\d{1,2})\.\s?(?P<year>\d{4})"), _numeric),
    (compile_trigger(r"(?P<day>\d{1,2})\.\s?(?P<month>\d{1,2})\."), _numeric),
    (compile_trigger(rf"{_DAY}\.?\s+(?:of\s+)?{MONTH_PATTERN}{_YEAR}"), _named),
    (compile_trigger(rf"{MONTH_PATTERN}\s+(?:the\s+)?{_DAY}{_YEAR}"), _named),
    (compile_trigger(r"(?P<day>\d{1,2})(?:st|nd|rd|th|\.)"), _day_of_month),
    (compile_trigger(rf"(?:(?P<which>this|next|last)\s+)?{_WEEKDAY}"), _weekday),
    (compile_trigger(rf"in\s+{_COUNTED}"), _relative_date),
    (compile_trigger(rf"{_COUNTED}\s+(?P<ago>ago)"), _relative_date),
)


MAX_SECONDS = 100 * 366 * 86_400

_UNITS = (
    (604_800, "week", "w wk wks week weeks"),
    (86_400, "day", "d day days"),
    (3_600, "hour", "h hr hrs hour hours"),
    (60, "minute", "m min mins minute minutes"),
    (1, "second", "s sec secs second seconds"),
)
_SECONDS = {word: size for size, _, words in _UNITS for word in words.split()}
_COUNTS = {
    "0.25": ("a quarter of an", "quarter of an"),
    "0.5": ("half", "half a", "half an"),
    "1": ("a", "an", "one"),
    "2": ("a couple of", "two"),
    "3": ("three",),
    "4": ("four",),
    "5": ("five",),
    "6": ("six",),
    "7": ("seven",),
    "8": ("eight",),
    "9": ("nine",),
    "10": ("ten",),
    "15": ("fifteen",),
    "20": ("twenty",),
    "30": ("thirty",),
    "40": ("forty",),
    "45": ("forty-five",),
    "90": ("ninety",),
}
_COUNT_OF = {word: count for count, words in _COUNTS.items() for word in words}
_COUNT_WORDS = "|".join(sorted(map(re.escape, _COUNT_OF), key=len, reverse=True))
_DURATION_PART = re.compile(
    rf"(?P<count>[0-9]{{1,9}}(?:[.,][0-9]{{1,6}})?|(?:{_COUNT_WORDS})(?![a-z]))\s*(?P<unit>[a-z]+)\.?"
)
_JOIN = re.compile(r"\s*(?:(?:,|and)\s*)?(?P<half>a half$)?")
_BARE_MINUTES = re.compile(r"[0-5][0-9]")


def read_seconds(text: str) -> int | None:
    """Return the seconds of "1h30", "2 hours and 5 min", "half an hour": units in falling order."""
    rest, total, last = _folded(text), Decimal(0), MAX_SECONDS
    while rest:
        part = _DURATION_PART.match(rest)
        if part is None:
            return _whole(total + 60 * int(rest)) if _minutes_after_hour(rest, last) else None
        size = _SECONDS.get(part["unit"])
        if size is None or size >= last:
            return None
        total, last = total + _count(part["count"]) * size, size
        join = _JOIN.match(rest, part.end())
        rest = rest[join.end() :] if join else ""
        if join and join["half"]:
            total += Decimal(size) / 2
        elif join and not rest and join[0].strip():
            return None
    return _whole(total) if last < MAX_SECONDS else None


def format_seconds(seconds: int) -> str:
    parts: list[str] = []
    for size, name, _ in _UNITS[1:]:
        count, seconds = divmod(seconds, size)
        if count:
            parts.append(f"{count} {name}{'' if count == 1 else 's'}")
    return " ".join(parts) or "0 seconds"


def convert_duration(text: str) -> Converted | None:
    seconds = read_seconds(text)
    if seconds is None:
        return None
    return Converted(seconds, format_seconds(seconds), {"text": format_seconds(seconds)})


def _count(text: str) -> Decimal:
    return Decimal(_COUNT_OF.get(text, text.replace(",", ".")))


def _minutes_after_hour(rest: str, last: int) -> bool:
    return last == 3_600 and _BARE_MINUTES.fullmatch(rest) is not None


def _whole(total: Decimal) -> int | None:
    return int(total) if total == int(total) and total <= MAX_SECONDS else None


_NAMED = {
    "noon": time(12),
    "midday": time(12),
    "midnight": time(0),
    "morning": time(9),
    "afternoon": time(15),
    "evening": time(18),
    "night": time(20),
}
_CLOCK = compile_trigger(
    r"(?:(?P<hour>\d{1,2})(?:(?P<mark>[:.h])(?P<minute>\d{2})(?::(?P<second>\d{2}))?)?|(?P<full>\d{1,2})h)"
    r"\s*(?P<half>[ap]\.?m\.?)?(?P<oclock>\s*o['’]?clock)?"
)
_ISO = compile_trigger(r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}(?::\d{2})?(?:[Zz]|[+-]\d{2}:\d{2})")
_ISO_SEPARATOR = re.compile(r"^([0-9]{4}-[0-9]{2}-[0-9]{2})t")
_FROM_NOW = compile_trigger(r"in\s+(?P<duration>.+)|(?P<later>.+)\s+from\s+now|(?P<ago>.+)\s+ago")
_MAX_WORDS = 8


def read_time(text: str, *, bare_hour: bool = True) -> time | None:
    """Return the time of day; "9" alone only if a bare hour is allowed, or after "at"."""
    words = _folded(text)
    said_at, words = words.startswith("at "), words.removeprefix("at ")
    if words in _NAMED:
        return _NAMED[words]
    found = _CLOCK.match(words)
    if found is None or not (bare_hour or said_at or words.strip("0123456789")):
        return None
    return _time_of(found)


def convert_time(text: str, rule: GroupRule, moment: Moment) -> Converted | None:
    clock = read_time(text)
    if clock is None:
        return None
    instant = moment.at(datetime.combine(moment.local.date(), clock))
    local = _format_clock(instant)
    return Converted(
        instant.isoformat(timespec="seconds").partition("T")[2],
        local,
        {"local": local, "datetime": instant.isoformat(timespec="seconds")},
    )


def convert_datetime(text: str, rule: GroupRule, moment: Moment) -> Converted | None:
    instant = read_instant(text, rule, moment)
    if instant is None:
        return None
    local = _format_clock(instant)
    display = f"{format_date(instant.date(), moment.local.date())} at {local}"
    parts = {"date": instant.date().isoformat(), "local": local, "text": display}
    return Converted(instant.isoformat(timespec="seconds"), display, parts)


def convert_when(text: str, rule: GroupRule, moment: Moment) -> Converted | None:
    """Return a time, or a date where the words name no time of day."""
    found = convert_datetime(text, rule, moment)
    if found is not None:
        return Converted(found.value, found.display, {k: found.parts[k] for k in ("date", "text")})
    day = convert_date(text, rule, moment)
    return day and Converted(day.value, day.display, {"date": day.value, "text": day.display})


def read_instant(text: str, rule: GroupRule, moment: Moment) -> datetime | None:
    words = _folded(text)
    if words == "now":
        return moment.local.replace(microsecond=0)
    if _ISO.matches(words):
        return datetime.fromisoformat(words.upper()).astimezone(moment.zone)
    return (
        _relative_instant(words, moment)
        or _date_and_time(_ISO_SEPARATOR.sub(r"\1 ", words), rule, moment)
        or _time_alone(words, rule, moment)
    )


def _relative_instant(words: str, moment: Moment) -> datetime | None:
    """Add elapsed time for hours and minutes; keep the local time of day for days and weeks."""
    found = _FROM_NOW.match(words)
    if found is None:
        return None
    now = moment.local.replace(microsecond=0)
    day = read_date(words, now.date(), "future")
    if day is not None:
        return moment.at(datetime.combine(day, now.time()))
    seconds = read_seconds(found["duration"] or found["later"] or found["ago"] or "")
    if seconds is None:
        return None
    elapsed = timedelta(seconds=-seconds if found["ago"] else seconds)
    return (now.astimezone(UTC) + elapsed).astimezone(moment.zone)


def _date_and_time(words: str, rule: GroupRule, moment: Moment) -> datetime | None:
    pieces = words.replace(", ", " ").split()
    if len(pieces) > _MAX_WORDS:
        return None
    for cut in range(len(pieces) - 1, 0, -1):
        first, second = " ".join(pieces[:cut]), " ".join(pieces[cut:])
        for day_words, clock_words in ((first, second), (second, first)):
            found = _combined(day_words, clock_words, rule, moment)
            if found is not None:
                return found
    return None


def _combined(day_words: str, clock_words: str, rule: GroupRule, moment: Moment) -> datetime | None:
    clock = read_time(clock_words, bare_hour=False)
    day = read_date(day_words, moment.local.date(), rule.prefer) if clock is not None else None
    if clock is None or day is None:
        return None
    repeats = 7 if BARE_WEEKDAY.matches(day_words) else 0
    return _preferred(day, clock, repeats, rule, moment)


def _time_alone(words: str, rule: GroupRule, moment: Moment) -> datetime | None:
    clock = read_time(words, bare_hour=False)
    return None if clock is None else _preferred(moment.local.date(), clock, 1, rule, moment)


def _preferred(day: date, clock: time, repeats: int, rule: GroupRule, moment: Moment) -> datetime:
    """Move a "monday at 9" that has passed today to next week; for the past, the reverse."""
    instant = moment.at(datetime.combine(day, clock))
    # In UTC: Python compares two times of one zone by local time, which repeats an hour in autumn.
    passed = instant.astimezone(UTC) <= moment.now.astimezone(UTC)
    wrong_side = passed if rule.prefer == "future" else not passed
    if repeats == 0 or not wrong_side:
        return instant
    step = timedelta(days=repeats if rule.prefer == "future" else -repeats)
    return moment.at(datetime.combine(day + step, clock))


def _time_of(found: dict[str, str | None]) -> time | None:
    hour, half = int(found["hour"] or found["full"] or 0), (found["half"] or "")[:1]
    if half and (not 1 <= hour <= 12 or found["mark"] == "h"):
        return None
    hour = hour % 12 + (12 if half == "p" else 0) if half else hour
    return time(hour, int(found["minute"] or 0), int(found["second"] or 0))


def _format_clock(instant: datetime) -> str:
    return f"{instant:%H:%M:%S}" if instant.second else f"{instant:%H:%M}"
