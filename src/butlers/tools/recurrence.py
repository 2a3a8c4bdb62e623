"""Repetition in a person's words ("every monday", "every 2 weeks"), kept as an RFC 5545 rule."""

from __future__ import annotations

from datetime import date, datetime, time
from typing import Annotated
from zoneinfo import ZoneInfo

from dateutil.rrule import rrulestr
from pydantic import Field

from butlers.domain.errors import InvalidArguments
from butlers.skills.reflexes.patterns import compile_trigger
from butlers.skills.reflexes.values import Moment
from butlers.skills.reflexes.words import english

RepeatText = Annotated[
    str,
    Field(
        max_length=120,
        description='e.g. "daily", "every monday", "every 2 weeks", "monthly", or an RRULE',
    ),
]

YEARS_AHEAD = 12
_GIVEN = compile_trigger(
    r"FREQ=(?P<rule>(?:DAILY|WEEKLY|MONTHLY|YEARLY)"
    r"(?:;(?:INTERVAL|UNTIL|WKST|BYDAY|BYMONTHDAY|BYMONTH|BYSETPOS)=[A-Z0-9,+-]{1,60}){0,6})"
)

_SIMPLE = {
    "DAILY": "daily every-day each-day täglich jeden-day",
    "WEEKLY": "weekly every-week each-week wöchentlich jede-week jeden-week",
    "MONTHLY": "monthly every-month each-month monatlich jeden-month",
    "YEARLY": "yearly annually every-year each-year jährlich jedes-year",
    "WEEKLY;BYDAY=MO,TU,WE,TH,FR": "weekdays every-weekday workdays every-workday werktags",
    "WEEKLY;INTERVAL=2": "biweekly fortnightly every-other-week",
    "DAILY;INTERVAL=2": "every-other-day",
}
_FREQUENCY = {
    words.replace("-", " "): rule for rule, all_ in _SIMPLE.items() for words in all_.split()
}
_DAYS = {
    name: name[:2].upper()
    for name in ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
}
_EVERY = compile_trigger(r"(?:every|each|jede[nrs]?|on)\s+(?P<days>.+)")
_COUNTED = compile_trigger(
    r"(?:every|alle)\s+(?P<count>\d{1,3}|two|three|four)\s+(?P<unit>days|weeks|months|years)"
)
_COUNTS = {"two": 2, "three": 3, "four": 4}
_UNITS = {"days": "DAILY", "weeks": "WEEKLY", "months": "MONTHLY", "years": "YEARLY"}


def read_repeat(text: str) -> str:
    """Return the rule of the words. Raises InvalidArguments for words that name no repetition."""
    words = english(" ".join(text.split()).casefold())
    rule = _FREQUENCY.get(words) or _counted(words) or _on_days(words) or _given(text)
    if rule is None:
        raise InvalidArguments(
            f"{text!r} is no repetition",
            hint='write "daily", "every monday", "every 2 weeks" or "monthly"',
        )
    return f"FREQ={rule}"


def anchored(rule: str, first: date) -> str:
    """Return a monthly or yearly rule that keeps the day of its first date.

    Without it a rule that begins on the 31st would stay on the 28th after the first February.
    """
    if first.day <= 28 or "BY" in rule or not rule.startswith(("FREQ=MONTHLY", "FREQ=YEARLY")):
        return rule
    days = ",".join(str(day) for day in range(28, first.day + 1))
    month = f";BYMONTH={first.month}" if rule.startswith("FREQ=YEARLY") else ""
    return f"{rule};BYMONTHDAY={days};BYSETPOS=-1{month}"


def next_date(rule: str, last: date) -> date | None:
    """Return the first date of an anchored rule after ``last``, one of its dates; None at the end."""
    start = datetime.combine(last, time())
    if "UNTIL=" not in rule:  # bounds the search of a rule without any date
        rule = f"{rule};UNTIL={last.year + YEARS_AHEAD}1231"
    found = rrulestr(rule, dtstart=start).after(start)
    return found.date() if found else None


def next_instant(rule: str, last: datetime, zone: ZoneInfo) -> datetime | None:
    """Return the next time of the rule at the same local time of day, also across a clock change."""
    local = last.astimezone(zone)
    day = next_date(rule, local.date())
    return Moment(last, zone).at(datetime.combine(day, local.time())) if day else None


def _counted(words: str) -> str | None:
    found = _COUNTED.match(words)
    if found is None:
        return None
    count = _COUNTS.get(found["count"] or "") or int(found["count"] or 0)
    return f"{_UNITS[found['unit'] or '']};INTERVAL={count}" if count else None


def _on_days(words: str) -> str | None:
    found = _EVERY.match(words)
    names = (found["days"] or "").replace(",", " ").split() if found else []
    days = [_DAYS.get(name.removesuffix("s")) for name in names if name != "and"]
    if not days or None in days:
        return None
    return f"WEEKLY;BYDAY={','.join(day for day in days if day)}"


def _given(text: str) -> str | None:
    """Return an RFC 5545 rule without its first key, or None."""
    found = _GIVEN.match(text.strip().upper().removeprefix("RRULE:"))
    if found is None:
        return None
    try:
        rrulestr(f"FREQ={found['rule']}", dtstart=datetime(2026, 1, 1))  # noqa: DTZ001  (local dates)
    except ValueError:
        return None
    return found["rule"]
