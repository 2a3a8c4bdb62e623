"""Dates of recurring bills agree with an independent calendar, across leap years and clock changes."""

from __future__ import annotations

import importlib.util
from datetime import date, timedelta
from pathlib import Path
from types import ModuleType

import pytest
from dateutil.relativedelta import relativedelta
from hypothesis import given
from hypothesis import strategies as st

ROSTER = Path(__file__).parents[3] / "roster"
STEPS = {
    "weekly": relativedelta(weeks=1),
    "biweekly": relativedelta(weeks=2),
    "monthly": relativedelta(months=1),
    "quarterly": relativedelta(months=3),
    "half-yearly": relativedelta(months=6),
    "yearly": relativedelta(years=1),
}
DAYS = st.dates(date(1996, 1, 1), date(2104, 12, 31))


def load(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location("recurrence_under_test", ROSTER / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


recurrence = load("finance/tools/recurrence.py")


@given(first=DAYS, repeats=st.sampled_from(sorted(STEPS)), number=st.integers(0, 400))
def test_occurrences_agree_with_dateutil(first: date, repeats: str, number: int) -> None:
    # dateutil counts from the first date too, so the 31st returns after a short month.
    assert recurrence.occurrence(first, repeats, number) == first + number * STEPS[repeats]


@given(first=DAYS, repeats=st.sampled_from(sorted(STEPS)), ahead=st.integers(-400, 9000))
def test_next_date_is_the_first_that_is_not_before(first: date, repeats: str, ahead: int) -> None:
    day = first + timedelta(days=ahead)
    found = recurrence.next_on_or_after(first, repeats, day)
    number = 0
    while first + number * STEPS[repeats] < day:
        number += 1
    assert found == first + number * STEPS[repeats]
    following = recurrence.next_after(first, repeats, found)
    assert following == first + (number + 1) * STEPS[repeats]


def test_single_payment_does_not_repeat() -> None:
    assert recurrence.next_after(date(2026, 1, 1), "once", date(2026, 1, 1)) is None
    assert recurrence.next_on_or_after(date(2026, 1, 1), "once", date(2027, 1, 1)) == date(
        2026, 1, 1
    )


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        (date(2026, 1, 31), [date(2026, 2, 28), date(2026, 3, 31), date(2026, 4, 30)]),
        (date(2028, 1, 31), [date(2028, 2, 29), date(2028, 3, 31), date(2028, 4, 30)]),
    ],
)
def test_last_day_of_a_month_is_kept(first: date, expected: list[date]) -> None:
    found = [recurrence.occurrence(first, "monthly", number) for number in (1, 2, 3)]
    assert found == expected
