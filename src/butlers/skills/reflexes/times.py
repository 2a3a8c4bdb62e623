"""Times of day, and instants."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta

from butlers.skills.reflexes.converted import Converted, GroupRule, Moment
from butlers.skills.reflexes.dates import BARE_WEEKDAY, read_date, say_date
from butlers.skills.reflexes.durations import read_seconds
from butlers.skills.reflexes.patterns import compile_trigger

_NAMED = {"noon": time(12), "midday": time(12), "midnight": time(0)}
_CLOCK = compile_trigger(
    r"(?:(?P<hour>\d{1,2})(?:(?P<mark>[:.h])(?P<minute>\d{2})(?::(?P<second>\d{2}))?)?|(?P<full>\d{1,2})h)"
    r"\s*(?P<half>[ap]\.?m\.?)?(?P<oclock>\s*o['’]?clock)?"
)
_ISO = compile_trigger(r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}(?::\d{2})?(?:[Zz]|[+-]\d{2}:\d{2})")
_ISO_SEPARATOR = re.compile(r"^([0-9]{4}-[0-9]{2}-[0-9]{2})t")
_FROM_NOW = compile_trigger(r"in\s+(?P<duration>.+)|(?P<later>.+)\s+from\s+now|(?P<ago>.+)\s+ago")
_MAX_WORDS = 8


def read_time(text: str, *, bare_hour: bool = True) -> time | None:
    """The time of day; "9" alone only where a bare hour is allowed, or after "at"."""
    words = " ".join(text.split()).casefold()
    said_at, words = words.startswith("at "), words.removeprefix("at ")
    if words in _NAMED:
        return _NAMED[words]
    found = _CLOCK.match(words)
    if found is None or not (bare_hour or said_at or words.strip("0123456789")):
        return None
    return _time_of(found)


def time_(text: str, rule: GroupRule, moment: Moment) -> Converted | None:
    clock = read_time(text)
    if clock is None:
        return None
    instant = moment.at(datetime.combine(moment.local.date(), clock))
    local = _say_clock(instant)
    return Converted(
        instant.isoformat(timespec="seconds").partition("T")[2],
        local,
        {"local": local, "datetime": instant.isoformat(timespec="seconds")},
    )


def datetime_(text: str, rule: GroupRule, moment: Moment) -> Converted | None:
    instant = read_instant(" ".join(text.split()).casefold(), rule, moment)
    if instant is None:
        return None
    local = _say_clock(instant)
    said = f"{say_date(instant.date(), moment.local.date())} at {local}"
    parts = {"date": instant.date().isoformat(), "local": local, "text": said}
    return Converted(instant.isoformat(timespec="seconds"), said, parts)


def read_instant(words: str, rule: GroupRule, moment: Moment) -> datetime | None:
    if words == "now":
        return moment.local.replace(microsecond=0)
    if _ISO.matches(words):
        return datetime.fromisoformat(words.upper()).astimezone(moment.zone)
    return (
        _relative(words, moment)
        or _date_and_time(_ISO_SEPARATOR.sub(r"\1 ", words), rule, moment)
        or _time_alone(words, rule, moment)
    )


def _relative(words: str, moment: Moment) -> datetime | None:
    """Hours and minutes are counted as they pass; days and weeks keep the time on the wall."""
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
    """A "monday at 9" that has passed today is next week's; for the past the other way round."""
    instant = moment.at(datetime.combine(day, clock))
    # In UTC, as two times of one zone are compared by the wall, which repeats an hour in autumn.
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


def _say_clock(instant: datetime) -> str:
    return f"{instant:%H:%M:%S}" if instant.second else f"{instant:%H:%M}"
