"""The table of group types: how each is read, and which parts it has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from butlers.skills.reflexes.converted import Converted, GroupRule, Moment
from butlers.skills.reflexes.dates import date_
from butlers.skills.reflexes.durations import duration
from butlers.skills.reflexes.money import money
from butlers.skills.reflexes.numbers import integer, number
from butlers.skills.reflexes.times import datetime_, time_
from butlers.skills.reflexes.units import unit


@dataclass(frozen=True, slots=True)
class Conversion:
    read: Callable[[str, GroupRule, Moment], Converted | None]
    parts: tuple[str, ...] = ()


def text(written: str) -> Converted:
    return Converted(written.strip(), written.strip())


CONVERSIONS: dict[str, Conversion] = {
    "text": Conversion(lambda written, rule, moment: text(written)),
    "number": Conversion(lambda written, rule, moment: number(written)),
    "integer": Conversion(lambda written, rule, moment: integer(written)),
    "unit": Conversion(lambda written, rule, moment: unit(written)),
    "money": Conversion(lambda written, rule, moment: money(written, rule), ("amount", "currency")),
    "date": Conversion(date_, ("text",)),
    "time": Conversion(time_, ("local", "datetime")),
    "datetime": Conversion(datetime_, ("date", "local", "text")),
    "duration": Conversion(lambda written, rule, moment: duration(written), ("text",)),
}


def convert(written: str, rule: GroupRule, moment: Moment) -> Converted | None:
    """The converted text, or None: 31 February and the year 10,000 are simply not dates."""
    try:
        return CONVERSIONS[rule.type].read(written, rule, moment)
    except (ValueError, ArithmeticError):
        return None
