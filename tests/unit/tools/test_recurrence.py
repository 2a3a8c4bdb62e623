"""Repetition in words, and the next date of a rule."""

from __future__ import annotations

import calendar
from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from butlers.domain.errors import InvalidArguments
from butlers.tools.recurrence import anchored, next_date, next_instant, read_repeat

BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("daily", "FREQ=DAILY"),
        ("every day", "FREQ=DAILY"),
        ("Jeden Tag", "FREQ=DAILY"),
        ("every Monday", "FREQ=WEEKLY;BYDAY=MO"),
        ("every monday and thursday", "FREQ=WEEKLY;BYDAY=MO,TH"),
        ("jeden Freitag", "FREQ=WEEKLY;BYDAY=FR"),
        ("every 2 weeks", "FREQ=WEEKLY;INTERVAL=2"),
        ("alle zwei Wochen", "FREQ=WEEKLY;INTERVAL=2"),
        ("jeden Monat", "FREQ=MONTHLY"),
        ("jährlich", "FREQ=YEARLY"),
        ("weekdays", "FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR"),
        ("RRULE:FREQ=MONTHLY;BYDAY=-1FR", "FREQ=MONTHLY;BYDAY=-1FR"),
    ],
)
def test_words_become_a_rule(text, rule):
    assert read_repeat(text) == rule


@pytest.mark.parametrize(
    "text",
    ["", "sometimes", "every blue moon", "every 0 days", "FREQ=SECONDLY", "FREQ=DAILY;COUNT=3"],
)
def test_other_words_are_refused(text):
    with pytest.raises(InvalidArguments):
        read_repeat(text)


@given(st.dates(date(2000, 1, 1), date(2199, 1, 1)), st.integers(1, 30))
def test_counted_days_and_weeks_agree_with_plain_addition(last, count):
    assert next_date(f"FREQ=DAILY;INTERVAL={count}", last) == last + timedelta(days=count)
    assert next_date("FREQ=WEEKLY", last) == last + timedelta(weeks=1)


@given(st.dates(date(2000, 1, 1), date(2180, 1, 1)))
def test_monthly_keeps_the_day_or_takes_the_last_of_a_shorter_month(first):
    rule, last = anchored("FREQ=MONTHLY", first), first
    for step in range(1, 15):
        year, month = divmod(first.year * 12 + first.month - 1 + step, 12)
        last = next_date(rule, last)
        day = min(first.day, calendar.monthrange(year, month + 1)[1])
        assert last == date(year, month + 1, day)


@given(st.dates(date(2000, 1, 1), date(2180, 1, 1)))
def test_yearly_on_a_leap_day_falls_on_the_last_day_of_february(first):
    rule, last = anchored("FREQ=YEARLY", first), first
    for year in range(first.year + 1, first.year + 6):
        last = next_date(rule, last)
        assert last == date(
            year, first.month, min(first.day, calendar.monthrange(year, first.month)[1])
        )


@given(st.dates(date(2024, 1, 1), date(2034, 1, 1)))
def test_time_of_day_stays_across_clock_changes(day):
    last = datetime(day.year, day.month, day.day, 9, 30, tzinfo=BERLIN)
    following = next_instant("FREQ=DAILY", last, BERLIN)
    assert following.astimezone(BERLIN).replace(tzinfo=None) == last.replace(
        tzinfo=None
    ) + timedelta(days=1)


def test_rule_without_any_date_ends():
    assert next_date("FREQ=MONTHLY;BYMONTH=2;BYMONTHDAY=30", date(2026, 1, 1)) is None
    assert next_date("FREQ=DAILY;UNTIL=20260105", date(2026, 1, 5)) is None
