"""Dates of recurring payments. Days only: no clock change can move them."""

from __future__ import annotations

from calendar import monthrange
from datetime import date, timedelta
from typing import Literal

Repeats = Literal["once", "weekly", "biweekly", "monthly", "quarterly", "half-yearly", "yearly"]

_DAYS = {"weekly": 7, "biweekly": 14}
_MONTHS = {"monthly": 1, "quarterly": 3, "half-yearly": 6, "yearly": 12}


def occurrence(first: date, repeats: str, number: int) -> date:
    """Return the due date with this number, counted from zero.

    A day that a month lacks becomes its last day; the month after has the original day again.
    """
    if repeats in _DAYS:
        return first + timedelta(days=_DAYS[repeats] * number)
    year, month = divmod(first.year * 12 + first.month - 1 + _MONTHS[repeats] * number, 12)
    return date(year, month + 1, min(first.day, monthrange(year, month + 1)[1]))


def next_on_or_after(first: date, repeats: str, day: date) -> date:
    """Return the first due date on or after the day; a single one is returned as it is."""
    if repeats == "once" or first >= day:
        return first
    number = _estimate(first, repeats, day)
    while occurrence(first, repeats, number) < day:
        number += 1
    return occurrence(first, repeats, number)


def next_after(first: date, repeats: str, day: date) -> date | None:
    """Return the first due date after the day, or None when the payment does not repeat."""
    return None if repeats == "once" else next_on_or_after(first, repeats, day + timedelta(days=1))


def _estimate(first: date, repeats: str, day: date) -> int:
    """Return a number whose date is not after the day."""
    if repeats in _DAYS:
        return (day - first).days // _DAYS[repeats]
    months = (day.year - first.year) * 12 + day.month - first.month
    return max(0, months // _MONTHS[repeats] - 1)
