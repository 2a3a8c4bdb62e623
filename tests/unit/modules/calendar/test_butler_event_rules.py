"""Recurrence rules of butler events as cron expressions: both name the same times."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import takewhile
from zoneinfo import ZoneInfo

import pytest

from butlers.domain.errors import InvalidArguments
from butlers.modules.calendar.butler_events import cron_of
from butlers.modules.calendar.rules import expand, read_rule
from butlers.modules.calendar.zones import instant_of
from butlers.scheduling.cron import parse

ZONE = "Europe/Berlin"
START = datetime(2026, 1, 31, 9, 30, tzinfo=ZoneInfo(ZONE)).replace(tzinfo=None)


@pytest.mark.parametrize(
    "rule",
    [
        "FREQ=DAILY",
        "FREQ=DAILY;BYMONTH=2,3",
        "FREQ=WEEKLY",
        "FREQ=WEEKLY;BYDAY=MO,SU",
        "FREQ=MONTHLY",
        "FREQ=MONTHLY;BYMONTHDAY=1,15",
        "FREQ=MONTHLY;BYDAY=FR",
        "FREQ=YEARLY",
        "FREQ=YEARLY;BYMONTH=5;BYMONTHDAY=13",
    ],
)
def test_cron_fires_at_the_times_of_the_rule(rule: str) -> None:
    last = START + timedelta(days=800)
    expected = [instant_of(one, ZONE) for one in expand(read_rule(rule), START, START, last)]
    after = instant_of(START, ZONE) - timedelta(seconds=1)
    end = instant_of(last, ZONE)
    times = parse(cron_of(rule, START), ZONE).times_after(after)
    assert list(takewhile(lambda due: due <= end, times)) == expected


@pytest.mark.parametrize(
    "rule",
    [
        "FREQ=DAILY;INTERVAL=2",
        "FREQ=DAILY;COUNT=3",
        "FREQ=MONTHLY;BYDAY=1MO",
        "FREQ=MONTHLY;BYMONTHDAY=-1",
        "FREQ=MONTHLY;BYDAY=FR;BYMONTHDAY=13",
        "FREQ=YEARLY;BYYEARDAY=100",
    ],
)
def test_rule_without_a_cron_expression_is_refused(rule: str) -> None:
    with pytest.raises(InvalidArguments, match="cannot repeat like this"):
        cron_of(rule, START)
