"""Units and dose schedules of the Health butler: exact conversion, and due times against an oracle."""

from __future__ import annotations

import importlib
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from dateutil.rrule import DAILY, WEEKLY, rrule
from hypothesis import given
from hypothesis import strategies as st

from butlers.domain.errors import InvalidArguments
from butlers.modules.registry import load_module
from support.tester_folder import ROSTER

load_module(ROSTER / "health", "health", "health")
units: Any = importlib.import_module("butlers_roster_health.tools.units")
schedule: Any = importlib.import_module("butlers_roster_health.tools.schedule")

ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "UTC")
TYPES_AND_UNITS = [(kind, unit) for kind in units.TYPES for unit in kind.scales]


@given(
    st.sampled_from(TYPES_AND_UNITS),
    st.decimals(min_value=0, max_value=10_000, places=3, allow_nan=False),
)
def test_conversion_round_trips(kind_and_unit: tuple[Any, str], value: Decimal) -> None:
    kind, unit = kind_and_unit
    standard = kind.standard(value, unit)
    back = units.convert(standard, kind.scales[kind.unit], kind.scales[unit])
    assert abs(back - value) <= Decimal("0.000000001")


@pytest.mark.parametrize(
    ("type", "value", "unit", "standard"),
    [
        ("weight", "1", "lb", "0.45359237"),
        ("weight", "1", "st", "6.35029318"),
        ("temperature", "98.6", "°F", "37"),
        ("glucose", "180.156", "mg/dL", "10"),
        ("cholesterol", "193.35", "mg/dL", "5"),
        ("waist", "10", "in", "25.4"),
        ("sleep", "90", "min", "1.5"),
        ("hba1c", "53", "mmol/mol", "7.00044"),
    ],
)
def test_known_conversions(type: str, value: str, unit: str, standard: str) -> None:  # noqa: A002
    assert units.find_type(type).standard(Decimal(value), unit) == Decimal(standard)


def test_names_are_read_in_both_languages_and_near_misses_are_refused() -> None:
    assert units.type_name("Heart Rate") == units.type_name("Puls") == "pulse"
    assert units.type_name("Blutdruck") == "blood_pressure"
    assert units.type_name("push-ups") == "push_ups"
    with pytest.raises(InvalidArguments, match="wieght"):
        units.type_name("wieght")


def test_names_and_units_are_unambiguous() -> None:
    names = [name for kind in units.TYPES for name in (kind.name, *kind.aliases)]
    assert len(names) == len(set(names))
    for kind in units.TYPES:
        assert all(units.unit_of(kind, unit) == unit for unit in kind.scales)


days = st.dates(date(2023, 1, 1), date(2029, 12, 31))
clocks = st.lists(
    st.builds(time, st.integers(0, 23), st.sampled_from([0, 15, 30, 45])),
    min_size=1,
    max_size=4,
    unique=True,
)


def oracle(plan: Any, first: date, last: date, zone: ZoneInfo) -> list[datetime]:
    """The due times by dateutil's recurrence rules."""
    start = datetime.combine(plan.starts_on, time())
    rule = (
        rrule(WEEKLY, dtstart=start, byweekday=sorted(plan.weekdays))
        if plan.weekdays
        else rrule(DAILY, dtstart=start, interval=plan.every_days)
    )
    end = min(last, plan.ends_on) if plan.ends_on else last
    found = rule.between(datetime.combine(first, time()), datetime.combine(end, time()), inc=True)
    return [
        datetime.combine(day.date(), clock, tzinfo=zone).astimezone(UTC)
        for day in found
        for clock in plan.times
    ]


@given(
    days,
    clocks,
    st.integers(1, 40),
    st.frozensets(st.integers(0, 6), max_size=6),
    st.one_of(st.none(), st.integers(0, 500)),
    st.integers(-30, 400),
    st.integers(0, 120),
    st.sampled_from(ZONES),
)
def test_due_times_agree_with_an_oracle(
    starts_on: date,
    times: list[time],
    every_days: int,
    weekdays: frozenset[int],
    length: int | None,
    offset: int,
    span: int,
    zone_name: str,
) -> None:
    zone = ZoneInfo(zone_name)
    ends_on = None if length is None else starts_on + timedelta(days=length)
    plan = schedule.DoseSchedule(
        tuple(sorted(times)), starts_on, ends_on, 1 if weekdays else every_days, weekdays
    )
    first = starts_on + timedelta(days=offset)
    last = first + timedelta(days=span)
    slots = plan.slots(first, last, zone)
    assert [at.astimezone(UTC) for at in slots] == oracle(plan, first, last, zone)
    assert all(first <= at.date() <= last + timedelta(days=1) for at in slots)


def test_dose_in_the_skipped_hour_moves_forward_and_in_the_repeated_one_comes_once() -> None:
    zone = ZoneInfo("Europe/Berlin")
    plan = schedule.DoseSchedule((time(2, 30),), date(2026, 1, 1))
    (skipped,) = plan.slots(date(2026, 3, 29), date(2026, 3, 29), zone)
    assert f"{skipped:%H:%M %z}" == "03:30 +0200"
    (repeated,) = plan.slots(date(2026, 10, 25), date(2026, 10, 25), zone)
    assert f"{repeated:%H:%M %z}" == "02:30 +0200"


def test_leap_day_is_an_ordinary_day() -> None:
    plan = schedule.DoseSchedule((time(8),), date(2028, 2, 27), None, 2)
    found = plan.slots(date(2028, 2, 27), date(2028, 3, 4), ZoneInfo("UTC"))
    assert [f"{at:%d.%m.}" for at in found] == ["27.02.", "29.02.", "02.03.", "04.03."]


def test_unreadable_times_and_weekdays_say_how_to_write_them() -> None:
    assert schedule.read_times(["8", "20:30", "morning"]) == (time(8), time(20, 30))
    assert schedule.read_weekdays(["Monday", "thu"]) == frozenset({0, 3})
    with pytest.raises(InvalidArguments, match="'25:00' is not a time"):
        schedule.read_times(["25:00"])
    with pytest.raises(InvalidArguments, match="'someday' is not a weekday"):
        schedule.read_weekdays(["someday"])
