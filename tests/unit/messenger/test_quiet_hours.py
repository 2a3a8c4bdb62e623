from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from butlers.messenger.policy import QuietHours

BERLIN = ZoneInfo("Europe/Berlin")
FIRST = datetime(2024, 1, 1, tzinfo=UTC)
NIGHT = QuietHours.parse("22:00-07:00", BERLIN)
NOON = QuietHours.parse("12:30-14:00", BERLIN)


def berlin(*parts: int, fold: int = 0) -> datetime:
    return datetime(*parts, tzinfo=BERLIN, fold=fold).astimezone(UTC)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("now", "end"),
    [
        (berlin(2026, 5, 4, 21, 59, 59), None),
        (berlin(2026, 5, 4, 22), berlin(2026, 5, 5, 7)),
        (berlin(2026, 5, 4, 23, 30), berlin(2026, 5, 5, 7)),
        (berlin(2026, 5, 5, 0), berlin(2026, 5, 5, 7)),
        (berlin(2026, 5, 5, 6, 59), berlin(2026, 5, 5, 7)),
        (berlin(2026, 5, 5, 7), None),
    ],
)
def test_quiet_hours_over_midnight_end_in_the_morning(now: datetime, end: datetime | None) -> None:
    assert NIGHT.end_after(now) == end


def test_quiet_hours_within_a_day_end_that_day() -> None:
    assert NOON.end_after(berlin(2026, 5, 4, 13)) == berlin(2026, 5, 4, 14)
    assert NOON.end_after(berlin(2026, 5, 4, 12, 29)) is None
    assert NOON.end_after(berlin(2026, 5, 4, 14)) is None


def test_quiet_hours_follow_the_wall_clock_over_dst_changes() -> None:
    spring = NIGHT.end_after(berlin(2026, 3, 28, 23))  # the clocks go forward that night
    autumn = NIGHT.end_after(berlin(2026, 10, 24, 23))  # and back that one
    assert (spring, autumn) == (
        datetime(2026, 3, 29, 5, tzinfo=UTC),
        datetime(2026, 10, 25, 6, tzinfo=UTC),
    )


def test_end_that_comes_twice_or_never_is_not_in_the_past() -> None:
    until_half_past_two = QuietHours.parse("22:00-02:30", BERLIN)
    again = berlin(2026, 10, 25, 2, 15, fold=1)  # the second quarter past two of that night
    assert until_half_past_two.end_after(again) == berlin(2026, 10, 25, 2, 30, fold=1)
    gap = until_half_past_two.end_after(berlin(2026, 3, 29, 1, 50))  # there is no half past two
    assert gap is not None
    assert berlin(2026, 3, 29, 1, 50) < gap <= berlin(2026, 3, 29, 3, 30)


clock_times = st.times().map(lambda moment: moment.strftime("%H:%M"))


@given(
    st.tuples(clock_times, clock_times).filter(lambda ends: ends[0] != ends[1]),
    st.integers(0, 6 * 365 * 86400).map(lambda s: FIRST + timedelta(seconds=s)),
    st.sampled_from(["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata"]),
)
def test_end_of_quiet_hours_is_ahead_and_within_a_day(
    ends: tuple[str, str], now: datetime, zone: str
) -> None:
    quiet = QuietHours.parse(f"{ends[0]}-{ends[1]}", ZoneInfo(zone))
    end = quiet.end_after(now)
    if end is not None:
        assert now < end <= now + timedelta(hours=26)
