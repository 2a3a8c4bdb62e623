"""Periods in a person's words."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from butlers.skills.reflexes.periods import read_days

TODAY = date(2026, 11, 18)  # a Wednesday


@pytest.mark.parametrize(
    ("words", "first", "last"),
    [
        ("today", "2026-11-18", "2026-11-18"),
        ("yesterday", "2026-11-17", "2026-11-17"),
        ("this week", "2026-11-16", "2026-11-22"),
        ("last week", "2026-11-09", "2026-11-15"),
        ("this month", "2026-11-01", "2026-11-30"),
        ("In  the last month", "2026-10-01", "2026-10-31"),
        ("next month", "2026-12-01", "2026-12-31"),
        ("last quarter", "2026-07-01", "2026-09-30"),
        ("last year", "2025-01-01", "2025-12-31"),
        ("March", "2026-03-01", "2026-03-31"),
        ("december", "2025-12-01", "2025-12-31"),
        ("feb 2024", "2024-02-01", "2024-02-29"),
        ("2026-02", "2026-02-01", "2026-02-28"),
        ("2025", "2025-01-01", "2025-12-31"),
        ("last 30 days", "2026-10-20", "2026-11-18"),
        ("past 2 weeks", "2026-11-05", "2026-11-18"),
        ("last 3 months", "2026-08-19", "2026-11-18"),
        ("since 1 october", "2026-10-01", "2026-11-18"),
        ("2026-01-05 to 2026-02-07", "2026-01-05", "2026-02-07"),
        ("between 1 march and 3 march", "2026-03-01", "2026-03-03"),
        ("past week", "2026-11-12", "2026-11-18"),
        ("this weekend", "2026-11-21", "2026-11-22"),
        ("last weekend", "2026-11-14", "2026-11-15"),
        ("heute", "2026-11-18", "2026-11-18"),
        ("letzte Woche", "2026-11-09", "2026-11-15"),
        ("dieses Jahr", "2026-01-01", "2026-12-31"),
        ("im März", "2026-03-01", "2026-03-31"),
        ("die letzten 30 Tage", "2026-10-20", "2026-11-18"),
        ("in den letzten 2 Wochen", "2026-11-05", "2026-11-18"),
        ("seit 1. Oktober", "2026-10-01", "2026-11-18"),
        ("vom 1. März bis 3. März", "2026-03-01", "2026-03-03"),
    ],
)
def test_period_has_first_and_last_day(words: str, first: str, last: str) -> None:
    assert read_days(words, TODAY) == (date.fromisoformat(first), date.fromisoformat(last))


@pytest.mark.parametrize(
    "words", ["", "soon", "month", "2026-13", "32 march", "from b to a", "0000"]
)
def test_other_words_are_no_period(words: str) -> None:
    assert read_days(words, TODAY) is None


@given(st.text(max_size=40), st.dates(date(1905, 1, 1), date(2190, 1, 1)))
def test_any_words_give_an_ordered_period_or_none(words: str, today: date) -> None:
    found = read_days(words, today)
    assert found is None or found[0] <= found[1]
