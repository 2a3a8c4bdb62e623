"""Dates, times and periods in a person's words, read in the owner's zone, for the arguments of tools."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import Annotated
from zoneinfo import ZoneInfo

from pydantic import Field

from butlers.domain.errors import InvalidArguments
from butlers.skills.reflexes.periods import read_days
from butlers.skills.reflexes.times import read_date, read_instant
from butlers.skills.reflexes.values import GroupRule, Moment, Prefer
from butlers.tools.context import CallContext

When = Annotated[
    str, Field(max_length=80, description='e.g. "now", "yesterday 18:30", "2026-03-01 09:00"')
]
Day = Annotated[str, Field(max_length=80, description='e.g. "today", "next friday", "2026-03-01"')]
PeriodText = Annotated[
    str,
    Field(
        max_length=80,
        description='e.g. "today", "this week", "last month", "march 2026", "last 30 days", "all"',
    ),
]


@dataclass(frozen=True, slots=True)
class Period:
    """Time from ``start`` up to, but not including, ``end``."""

    first_day: date
    last_day: date
    start: datetime
    end: datetime
    text: str  # the person's words


def read_when(
    ctx: CallContext, text: str, *, prefer: Prefer = "past", zone: ZoneInfo | None = None
) -> datetime:
    """Return the instant of the words; a day without a time of day is its noon.

    The words are local time of the owner, or of another zone. Raises InvalidArguments for words that name
    no time.
    """
    moment = Moment(ctx.now, zone or ctx.zone)
    instant = read_instant(text, GroupRule(prefer=prefer), moment)
    if instant is None:
        day = read_date(text, moment.local.date(), prefer)
        instant = moment.at(datetime.combine(day, time(12))) if day else None
    if instant is None:
        raise InvalidArguments(
            f"{text!r} is not a time", hint='write "yesterday 18:30" or "2026-03-01 09:00"'
        )
    return instant


def read_day(ctx: CallContext, text: str, *, prefer: Prefer = "future") -> date:
    """Return the date of the words. Raises InvalidArguments for words that name no day."""
    try:
        day = read_date(text, Moment(ctx.now, ctx.zone).local.date(), prefer)
    except ValueError:
        day = None
    if day is None:
        raise InvalidArguments(
            f"{text!r} is not a date", hint='write "next friday", "4 may" or "2026-03-01"'
        )
    return day


def read_period(ctx: CallContext, text: str) -> Period:
    """Return the period of the words. Raises InvalidArguments for words that name no period."""
    moment = Moment(ctx.now, ctx.zone)
    days = read_days(text, moment.local.date())
    if days is None:
        raise InvalidArguments(
            f"{text!r} is not a period",
            hint='write "this week", "last month", "march 2026" or "last 30 days"',
        )
    first, last = days
    start = moment.at(datetime.combine(first, time()))
    end = moment.at(datetime.combine(last + timedelta(days=1), time()))
    return Period(first, last, start, end, text)
