"""Due times on ordinary days and at clock changes, compared with a reference implementation."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from butlers.domain.errors import InvalidArguments
from butlers.scheduling.cron import ALIASES, instant_of, parse
from support.properties import examples
from unit.scheduling.oracle import changes, firings

BERLIN, NEW_YORK = "Europe/Berlin", "America/New_York"
LORD_HOWE, KOLKATA = "Australia/Lord_Howe", "Asia/Kolkata"
# Beyond the four: clocks that jump over midnight, and a zone that pauses its summer time.
ZONES = (BERLIN, NEW_YORK, LORD_HOWE, KOLKATA, "America/Santiago", "Africa/Casablanca")
WEEK = timedelta(days=7)


def local(zone: str, *when: int) -> datetime:
    return datetime(*when, tzinfo=ZoneInfo(zone)).astimezone(UTC)  # type: ignore[misc,arg-type]


def walk(cron: str, zone: str, after: datetime, until: datetime) -> list[datetime]:
    return list(takewhile(lambda due: due < until, parse(cron, zone).times_after(after)))


def shown(zone: str, found: list[datetime]) -> list[str]:
    return [due.astimezone(ZoneInfo(zone)).strftime("%d %H:%M%z") for due in found]


@pytest.mark.parametrize(
    ("zone", "day", "cron", "expected"),
    [
        # Spring, Berlin 29 March 2026: 02:00 becomes 03:00.
        (BERLIN, (2026, 3, 29), "30 2 * * *", "03:00+0200"),
        (BERLIN, (2026, 3, 29), "0,30 2 * * *", "03:00+0200"),
        (BERLIN, (2026, 3, 29), "0 9 * * *", "09:00+0200"),
        (BERLIN, (2026, 3, 29), "30 1-4 * * *", "01:30+0100 03:00+0200 03:30+0200 04:30+0200"),
        (BERLIN, (2026, 3, 29), "*/30 1-3 * * *", "01:00+0100 01:30+0100 03:00+0200 03:30+0200"),
        (BERLIN, (2026, 3, 29), "0 */6 * * *", "00:00+0100 06:00+0200 12:00+0200 18:00+0200"),
        (BERLIN, (2026, 3, 29), "*/20 2 * * *", ""),
        # Autumn, Berlin 25 October 2026: 03:00 becomes 02:00.
        (BERLIN, (2026, 10, 25), "30 2 * * *", "02:30+0200"),
        (BERLIN, (2026, 10, 25), "0 9 * * *", "09:00+0100"),
        (BERLIN, (2026, 10, 25), "*/30 2 * * *", "02:00+0200 02:30+0200 02:00+0100 02:30+0100"),
        # New York, 8 March and 1 November 2026.
        (NEW_YORK, (2026, 3, 8), "30 2 * * *", "03:00-0400"),
        (NEW_YORK, (2026, 3, 8), "*/30 1-3 * * *", "01:00-0500 01:30-0500 03:00-0400 03:30-0400"),
        (NEW_YORK, (2026, 11, 1), "30 1 * * *", "01:30-0400"),
        (NEW_YORK, (2026, 11, 1), "*/30 1 * * *", "01:00-0400 01:30-0400 01:00-0500 01:30-0500"),
        # Lord Howe, half an hour: 4 October 2026 (02:00 becomes 02:30), 5 April 2026 (02:00 becomes 01:30).
        (LORD_HOWE, (2026, 10, 4), "15 2 * * *", "02:30+1100"),
        (LORD_HOWE, (2026, 10, 4), "*/20 2-3 * * *", "02:40+1100 03:00+1100 03:20+1100 03:40+1100"),
        (LORD_HOWE, (2026, 4, 5), "45 1 * * *", "01:45+1100"),
        (LORD_HOWE, (2026, 4, 5), "*/20 1 * * *", "01:00+1100 01:20+1100 01:40+1100 01:40+1030"),
        (LORD_HOWE, (2026, 4, 5), "*/30 3 * * *", "03:00+1030 03:30+1030"),
        # Kolkata never changes, and is half an hour off.
        (KOLKATA, (2026, 3, 29), "30 2 * * *", "02:30+0530"),
        (KOLKATA, (2026, 10, 25), "0 */8 * * *", "00:00+0530 08:00+0530 16:00+0530"),
    ],
)  # fmt: skip
def test_due_times_at_clock_changes(
    zone: str, day: tuple[int, int, int], cron: str, expected: str
) -> None:
    start = local(zone, *day)
    end = (start + timedelta(hours=36)).astimezone(ZoneInfo(zone))
    found = walk(
        cron, zone, start - timedelta(minutes=1), local(zone, end.year, end.month, end.day)
    )
    assert [due[3:] for due in shown(zone, found)] == expected.split()


YEARLY = (
    "30 2 * * *", "0 0 * * *", "45 1 * * 0", "0,30 1,2,3 * * *", "15 2 1-7 * 1", "59 23 28-31 * *",
    "5 */3 * * *", "*/45 0-4 * * 0", "7 * * 4,10 *", "*/17 1-3 * * 6,0", "0 12 13 * 5",
)  # fmt: skip


@pytest.mark.parametrize("zone", ZONES)
def test_whole_years_agree_with_the_oracle(zone: str) -> None:
    start, end = datetime(2026, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)
    for cron in YEARLY:
        assert walk(cron, zone, start - timedelta(minutes=1), end) == firings(cron, zone, 2026), (
            cron
        )


def fields(low: int, high: int) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    listed = st.lists(number, min_size=1, max_size=3, unique=True)
    ranged = st.tuples(number, number).map(lambda ends: f"{min(ends)}-{max(ends)}")
    stepped = st.integers(2, max(2, high // 2)).map(lambda step: f"*/{step}")
    return st.one_of(
        listed.map(lambda found: ",".join(map(str, found))), ranged, stepped, st.just("*")
    )


CRONS = st.builds(
    "{} {} {} {} {}".format,
    fields(0, 59),
    st.one_of(fields(0, 23), fields(0, 4)),  # where the clocks change
    st.one_of(st.just("*"), st.just("*"), fields(1, 28)),
    st.one_of(st.just("*"), fields(1, 12)),
    st.one_of(st.just("*"), st.just("*"), fields(0, 7)),
)


@settings(max_examples=examples(100), deadline=None, suppress_health_check=list(HealthCheck))
@given(cron=CRONS, zone=st.sampled_from(ZONES))
def test_any_expression_agrees_with_the_oracle(cron: str, zone: str) -> None:
    """Compare a year, or the weeks around each change if there are many due times."""
    expected = firings(cron, zone, 2026)
    start, end = datetime(2026, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)
    if len(expected) <= 1000:
        assert walk(cron, zone, start - timedelta(minutes=1), end) == expected
        return
    for change in changes(zone, 2026) or [start + WEEK]:
        first, last = change - timedelta(hours=30), change + timedelta(hours=30)
        window = [due for due in expected if first < due < last]
        assert walk(cron, zone, first, last) == window


@settings(max_examples=examples(100), deadline=None)
@given(cron=CRONS, zone=st.sampled_from(ZONES), offset=st.integers(0, 365 * 86400 * 1000))
def test_next_time_is_later_and_independent_of_the_starting_point(
    cron: str, zone: str, offset: int
) -> None:
    after = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(milliseconds=offset)
    due = parse(cron, zone).next_after(after)
    assert due > after
    assert due.tzinfo is UTC
    assert (due.second, due.microsecond) == (0, 0)
    assert parse(cron, zone).next_after(after + (due - after) / 2) == due
    assert parse(cron, zone).latest(after, due) == due
    assert parse(cron, zone).count(after, due, 10) == 1


def test_fixed_time_runs_once_in_a_repeated_hour() -> None:
    second_time = datetime(2026, 10, 25, 1, 10, tzinfo=UTC)  # 02:10 for the second time
    assert shown(BERLIN, [parse("30 2 * * *", BERLIN).next_after(second_time)]) == ["26 02:30+0100"]


def test_latest_due_time_of_a_long_gap() -> None:
    cron = parse("* * * * *", "UTC")
    start = datetime(2020, 1, 1, tzinfo=UTC)
    end = datetime(2026, 6, 1, 12, 0, 30, tzinfo=UTC)
    assert cron.latest(start, end) == end.replace(second=0)
    assert cron.count(start, end, 1000) == 1000
    assert parse("0 0 1 1 *", "UTC").latest(end, end + timedelta(days=30)) is None


def test_aliases_match_their_expressions() -> None:
    after = datetime(2026, 5, 13, 10, 30, tzinfo=UTC)
    for alias, fields_of in ALIASES.items():
        assert parse(alias, BERLIN).next_after(after) == parse(fields_of, BERLIN).next_after(after)
    assert parse("@Daily", "UTC").next_after(after) == datetime(2026, 5, 14, tzinfo=UTC)


def test_a_leap_day() -> None:
    due = islice(parse("0 0 29 2 *", "UTC").times_after(datetime(2096, 3, 1, tzinfo=UTC)), 2)
    assert [found.year for found in due] == [2104, 2108]


@pytest.mark.parametrize(
    ("cron", "zone", "reason"),
    [
        ("0 0 30 2 *", "UTC", "never fires"),
        ("0 0 31 4,6,9,11 *", "UTC", "never fires"),
        ("* * * * * *", "UTC", "seconds are not supported"),
        ("*/1 * * * * *", "UTC", "seconds are not supported"),
        ("0 0 * * * * 2026", "UTC", "seconds are not supported"),
        ("", "UTC", "0 fields"),
        ("* * * *", "UTC", "4 fields"),
        ("60 * * * *", "UTC", "bad minute"),
        ("* 24 * * *", "UTC", "bad hour"),
        ("* * 32 * *", "UTC", "bad day-of-month"),
        ("* * 30 13 *", "UTC", "bad month"),
        ("* * * * 8", "UTC", "bad day-of-week"),
        ("*/0 * * * *", "UTC", "bad minute"),
        ("5-1 * * * *", "UTC", "bad minute"),
        ("every day at nine", "UTC", "4 fields"),
        ("@reboot", "UTC", "unknown cron alias"),
        ("@", "UTC", "unknown cron alias"),
        ("0 9\x00 * * *", "UTC", "not a cron expression"),
        ("0\n9 * * *", "UTC", "not a cron expression"),
        ("1," * 200 + "1 * * * *", "UTC", "not a cron expression"),
        ("0 9 * * *", "Mars/Olympus", "not a time zone"),
        ("0 9 * * *", "", "not a time zone"),
        ("0 9 * * *", "../../etc/passwd", "not a time zone"),
        ("0 9 * * *", "Europe", "not a time zone"),
        ("0 9 * * *", "UTC\x00", "not a time zone"),
    ],
)  # fmt: skip
def test_invalid_expression_is_rejected_with_reason_and_hint(
    cron: str, zone: str, reason: str
) -> None:
    with pytest.raises(InvalidArguments, match=reason) as caught:
        parse(cron, zone)
    assert caught.value.hint


@settings(max_examples=examples(300), deadline=None)
@given(st.text(max_size=40) | st.text("0123456789*/,-#LWSUNMOJA @", max_size=30))
def test_any_text_parses_or_is_rejected(text: str) -> None:
    with contextlib.suppress(InvalidArguments):
        assert parse(text, "Europe/Berlin").next_after(datetime(2026, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize(
    ("wall", "expected"),
    [
        ("2026-03-29T02:30", "29 03:00+0200"),
        ("2026-10-25T02:30", "25 02:30+0200"),
        ("2026-06-01T09:00:00.000005", "01 09:00+0200"),
    ],
)
def test_instant_of_a_local_time(wall: str, expected: str) -> None:
    due = instant_of(datetime.fromisoformat(wall), ZoneInfo(BERLIN))
    assert shown(BERLIN, [due]) == [expected]


@pytest.mark.parametrize(
    ("cron", "chosen"),
    [("0 8 * * *", True), ("0 * * * *", True), ("*/15 * * * *", False), ("@daily", False)],
)
def test_chosen_minute(cron: str, chosen: bool) -> None:
    assert parse(cron, "UTC").has_chosen_minute is chosen
