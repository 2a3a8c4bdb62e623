"""Times of events in a person's words: windows, begins and ends, and their texts in answers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from butlers.domain.errors import InvalidArguments
from butlers.modules.calendar.model import MAX_SPAN, Occurrence, Window
from butlers.modules.calendar.zones import instant_of, local_of, read_zone
from butlers.skills.reflexes.times import format_date, read_date, read_time
from butlers.skills.reflexes.words import english
from butlers.tools.context import CallContext
from butlers.tools.dates import read_day, read_period, read_when
from butlers.tools.recurrence import anchored, read_repeat

FLOATING = "floating"
FIRST_YEAR, LAST_YEAR = 1900, 2200
_PARTS = {
    "morning": (time(6), time(12)),
    "afternoon": (time(12), time(18)),
    "evening": (time(18), time(23)),
    "night": (time(20), time.max),
}


@dataclass(frozen=True, slots=True)
class EventTimes:
    start: datetime  # local
    end: datetime  # local
    zone: str | None
    all_day: bool


def window_of(zone: ZoneInfo, first: datetime, last: datetime) -> Window:
    """Return the window of two local times."""
    return Window(instant_of(first, str(zone)), instant_of(last, str(zone)), zone)


def read_window(ctx: CallContext, words: str) -> Window:
    """Return the window of words such as "tomorrow", "friday afternoon", "next week", "monday at 9"."""
    plain = english(" ".join(words.split()).casefold()).strip("?.! ").removeprefix("on ")
    day_words, _, part = plain.rpartition(" ")
    if part in _PARTS:
        day = read_day(ctx, day_words or "today")
        return window_of(ctx.zone, *(datetime.combine(day, one) for one in _PARTS[part]))
    today = ctx.now.astimezone(ctx.zone).date()
    if whole := _day(plain, today):
        first = datetime.combine(whole, time())
        return window_of(ctx.zone, first, first + timedelta(days=1))
    try:
        period = read_period(ctx, plain)
    except InvalidArguments:
        start = read_when(ctx, plain, prefer="future")
        return Window(start, start + timedelta(hours=1), ctx.zone)
    return Window(period.start, period.end, ctx.zone)


def read_times(
    ctx: CallContext,
    start_at: str,
    end_at: str | None,
    *,
    all_day: bool | None,
    timezone: str | None,
    minutes: int,
) -> EventTimes:
    """Return the times of a new event. A begin without a time of day makes an all-day event."""
    floating = (timezone or "").casefold() == FLOATING
    zone = ZoneInfo(read_zone(timezone)) if timezone and not floating else ctx.zone
    today = ctx.now.astimezone(zone).date()
    day = _day(start_at, today)
    if all_day or (all_day is None and day is not None):
        return _whole_days(ctx, day or local_start(ctx, start_at, zone).date(), end_at)
    start = local_start(ctx, start_at, zone)
    if end_at is None:
        end = local_of(instant_of(start, str(zone)) + timedelta(minutes=minutes), str(zone))
    else:
        end = local_end(ctx, end_at, start, zone)
    return checked(EventTimes(start, end, None if floating else str(zone), False))


def local_start(ctx: CallContext, words: str, zone: ZoneInfo) -> datetime:
    return local_of(read_when(ctx, words, prefer="future", zone=zone), str(zone))


def local_end(ctx: CallContext, words: str, start: datetime, zone: ZoneInfo) -> datetime:
    """Return the end; a time of day alone is the first such time after the begin."""
    clock = read_time(words)
    if clock is None:
        return local_start(ctx, words, zone)
    end = datetime.combine(start.date(), clock)
    return end if end >= start else end + timedelta(days=1)


def moved_start(ctx: CallContext, words: str, start: datetime, zone: str | None) -> datetime:
    """Return the new begin of an event: words without a day keep its day, without a time its time."""
    where = ZoneInfo(zone) if zone else ctx.zone
    if (clock := read_time(words)) is not None:
        return datetime.combine(start.date(), clock)
    if (day := _day(words, ctx.now.astimezone(where).date())) is not None:
        return datetime.combine(day, start.time())
    return local_start(ctx, words, where)


def checked(times: EventTimes) -> EventTimes:
    """Return the times. Raises InvalidArguments for impossible ones."""
    if times.end < times.start:
        raise InvalidArguments("the event ends before it begins", hint="give a later end_at")
    if times.end - times.start > MAX_SPAN:
        raise InvalidArguments("the event is longer than ten years", hint="give an earlier end_at")
    if not (times.start.year >= FIRST_YEAR and times.end.year <= LAST_YEAR):
        raise InvalidArguments(
            f"the event is not between {FIRST_YEAR} and {LAST_YEAR}", hint="check the year"
        )
    return times


def read_rule_words(words: str, day: date) -> str:
    """Return the rule of an RRULE, or of words such as "every monday", for a series from that day on."""
    if "FREQ=" in words.upper():
        return words.strip().upper().removeprefix("RRULE:")
    return anchored(read_repeat(words), day)


def occurrence_time(one: Occurrence, zone: ZoneInfo) -> str:
    """Return the time of day: "12:30–13:30", "all day"."""
    if one.event.all_day:
        return "all day"
    start, end = (instant.astimezone(zone) for instant in one.instants(zone))
    if start.date() != end.date() and end.time() != time():
        return f"{start:%H:%M}–{end:%-d %b %H:%M}"
    return f"{start:%H:%M}–{end:%H:%M}" if end > start else f"{start:%H:%M}"


def occurrence_text(one: Occurrence, zone: ZoneInfo, today: date) -> str:
    """Return day and time: "tomorrow 12:30–13:30", "Tue 5 May, all day"."""
    if one.event.all_day:
        first, last = one.start.date(), max(one.start, one.end - timedelta(days=1)).date()
        days = format_date(first, today)
        until = f" to {format_date(last, today)}" if last > first else ""
        return f"{days}{until}, all day"
    day = one.instants(zone)[0].astimezone(zone).date()
    return f"{format_date(day, today)} {occurrence_time(one, zone)}"


def _whole_days(ctx: CallContext, first: date, end_at: str | None) -> EventTimes:
    """Return the times of an all-day event; its end is the last day in words, kept as the day after."""
    last = read_day(ctx, end_at) if end_at else first
    start = datetime.combine(first, time())
    return checked(
        EventTimes(start, datetime.combine(last, time()) + timedelta(days=1), None, True)
    )


def _day(words: str, today: date) -> date | None:
    try:
        return read_date(words, today, "future")
    except (ValueError, OverflowError):
        return None
