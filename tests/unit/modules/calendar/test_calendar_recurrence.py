"""Recurrence against two oracles (dateutil, recurring-ical-events), across zones and clock changes."""

# ruff: noqa: DTZ001  (local times of series)

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
import recurring_ical_events
from dateutil.rrule import rrulestr
from hypothesis import settings
from icalendar import Calendar

from butlers.domain.errors import InvalidArguments
from butlers.modules.calendar.model import CalendarEvent
from butlers.modules.calendar.rules import expand, read_rule
from butlers.modules.calendar.zones import instant_of, known_zone, local_of
from support.properties import DEEP_EXAMPLES

CASES_CI, CASES_DEEP = 120, 10_000
DAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
# Rules on both sides of the equator, a change of half an hour, none at all, and no zone.
ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "UTC", None)
# Clock changes of these zones: windows are laid around them.
CHANGES = (
    datetime(2026, 3, 29),
    datetime(2026, 10, 25),
    datetime(2026, 3, 8),
    datetime(2026, 4, 5),
)
ID = UUID(int=1)


@dataclass(frozen=True)
class Case:
    rule: str
    start: datetime
    minutes: int
    zone: str | None
    first: datetime
    last: datetime
    excluded: tuple[datetime, ...] = ()

    @property
    def event(self) -> CalendarEvent:
        return CalendarEvent(
            id=ID,
            source_id=ID,
            uid="x",
            title="x",
            start_local=self.start,
            end_local=self.start + timedelta(minutes=self.minutes),
            zone=self.zone,
            rule=self.rule,
            except_dates=self.excluded,
        )

    def ours(self) -> list[datetime]:
        event = self.event
        edge = timedelta(days=2)
        starts = event.starts_between(
            self.first.replace(tzinfo=None) - event.duration - edge,
            self.last.replace(tzinfo=None) + edge,
        )
        found = [event.occurrence(start) for start in starts]
        return sorted(
            one.starts_at for one in found if one.starts_at < self.last and one.ends_at > self.first
        )

    def oracle(self) -> list[datetime]:
        zone = f";TZID={self.zone}" if self.zone else ""
        end = self.start + timedelta(minutes=self.minutes)
        text = [
            "BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:x", "BEGIN:VEVENT", "UID:x",
            f"DTSTART{zone}:{self.start:%Y%m%dT%H%M%S}", f"DTEND{zone}:{end:%Y%m%dT%H%M%S}",
            f"RRULE:{self.rule}",
            *(f"EXDATE{zone}:{one:%Y%m%dT%H%M%S}" for one in self.excluded),
            "END:VEVENT", "END:VCALENDAR", "",
        ]  # fmt: skip
        calendar = Calendar.from_ical("\r\n".join(text))
        found = recurring_ical_events.of(calendar).between(self.first, self.last)
        starts = [one["DTSTART"].dt for one in found]
        return sorted(
            one.astimezone(UTC) if one.tzinfo else one.replace(tzinfo=UTC) for one in starts
        )


def number_of_cases() -> int:
    return CASES_DEEP if settings().max_examples >= DEEP_EXAMPLES else CASES_CI


def random_rule(chance: Random) -> str:
    frequency = chance.choice(("YEARLY", "MONTHLY", "WEEKLY", "DAILY"))
    parts, by_period = [f"FREQ={frequency}"], frequency in ("YEARLY", "MONTHLY")

    def maybe(probability: float, key: str, values: list[object], most: int) -> bool:
        if chance.random() >= probability:
            return False
        chosen = chance.sample(values, chance.randint(1, min(most, len(values))))
        parts.append(f"{key}={','.join(str(one) for one in chosen)}")
        return True

    maybe(0.5, "INTERVAL", [1, 2, 3, 5], 1)
    maybe(0.3, "BYMONTH", list(range(1, 13)), 4)
    weeks = frequency == "YEARLY" and maybe(0.15, "BYWEEKNO", [1, 2, 20, 52, 53, -1, -2], 2)
    if frequency == "YEARLY" and not weeks:
        maybe(0.15, "BYYEARDAY", [1, 60, 100, 366, -1, -366], 2)
    if frequency != "WEEKLY":
        maybe(0.3, "BYMONTHDAY", [1, 2, 15, 28, 29, 30, 31, -1, -5], 3)
    # dateutil takes the days with and without an ordinal as both required; RFC 5545 means either.
    ordinals = by_period and not weeks and chance.random() < 0.5
    days = [f"{one}{day}" for one in (1, 2, -1, 5) for day in DAYS] if ordinals else list(DAYS)
    maybe(0.5, "BYDAY", list(days), 3)
    maybe(0.1, "BYHOUR", [1, 2, 8, 17], 2)
    if by_period:
        maybe(0.2, "BYSETPOS", [1, -1, 2], 2)
    maybe(0.3, "WKST", ["MO", "SU"], 1)
    if chance.random() < 0.3:
        parts.append(f"COUNT={chance.randint(1, 40)}")
    return ";".join(parts)


def random_case(chance: Random) -> Case:
    rule, zone = random_rule(chance), chance.choice(ZONES)
    start = datetime(
        chance.randint(2023, 2027), chance.randint(1, 12), chance.randint(1, 28),
        chance.choice((0, 1, 2, 3, 9, 23)), chance.choice((0, 30)),
    )  # fmt: skip
    if "COUNT" not in rule and chance.random() < 0.4:
        until = start + timedelta(days=chance.randint(0, 900))
        rule += f";UNTIL={until:%Y%m%dT%H%M%S}{'Z' if zone else ''}"
    around = chance.choice(CHANGES) + timedelta(days=chance.randint(-3, 3))
    first = around.replace(tzinfo=UTC) if zone else around
    last = first + timedelta(days=chance.choice((1, 7, 60, 400)))
    probable = list(expand(read_rule(rule), start, start, start + timedelta(days=400)))[:40]
    excluded = tuple(sorted(chance.sample(probable, min(len(probable), chance.randint(0, 2)))))
    return Case(rule, start, chance.choice((0, 30, 90, 1500)), zone, first, last, excluded)


def test_starts_equal_those_of_recurring_ical_events() -> None:
    chance = Random(20)
    for number in range(number_of_cases()):
        case = random_case(chance)
        expected = case.oracle()
        if case.zone is None:
            case = Case(
                case.rule, case.start, case.minutes, None, case.first.replace(tzinfo=UTC),
                case.last.replace(tzinfo=UTC), case.excluded,
            )  # fmt: skip
        if (
            case.minutes == 0
        ):  # the two count an event without length at the window's edge differently
            expected = [one for one in expected if case.first < one < case.last]
        assert case.ours() == expected, f"case {number}: {case}"


def test_rules_equal_those_of_dateutil() -> None:
    chance = Random(21)
    for number in range(number_of_cases()):
        rule = random_rule(chance)
        start = datetime(
            chance.randint(2015, 2027), chance.randint(1, 12), chance.randint(1, 28), 9
        )
        first = datetime(2026, 1, 1) + timedelta(days=chance.randint(-400, 400))
        last = first + timedelta(days=chance.choice((1, 30, 400)))
        bounded = rule if "COUNT" in rule else f"{rule};UNTIL=20300101T000000"
        expected = rrulestr(bounded, dtstart=start).between(first, last, inc=True)
        assert list(expand(read_rule(rule), start, first, last)) == expected, f"{number}: {rule}"


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30", 0),
        ("FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=31", 0),
        ("FREQ=DAILY;COUNT=100000", 367),
        ("FREQ=YEARLY;BYDAY=1MO,-1FR,WE", 54),  # either kind of day
        ("FREQ=YEARLY;INTERVAL=9999", 0),
    ],
)
def test_work_is_bounded_by_the_window(rule: str, expected: int) -> None:
    start = datetime(1970, 1, 1, 9)
    found = list(expand(read_rule(rule), start, datetime(2026, 1, 1), datetime(2027, 1, 2, 12)))
    assert len(found) == expected
    event = Case(rule, start, 30, "UTC", start, start).event
    assert event.last_at() is None


@pytest.mark.parametrize(
    "rule",
    [
        "", "FREQ=SECONDLY", "FREQ=HOURLY;INTERVAL=2", "FREQ=DAILY;COUNT=0", "FREQ=DAILY;COUNT=-1",
        "FREQ=DAILY;INTERVAL=0", "FREQ=DAILY;INTERVAL=99999999999", "FREQ=WEEKLY;BYDAY=XX",
        "FREQ=WEEKLY;BYDAY=99MO", "FREQ=DAILY;BYMONTHDAY=0", "FREQ=DAILY;UNTIL=never",
        "FREQ=DAILY;COUNT=3;UNTIL=20260101", "FREQ=DAILY;BYEASTER=1", "FREQ=DAILY;BYHOUR=24",
        "FREQ=DAILY;BYMONTH=" + ",".join(["1"] * 500), "FREQ=DAILY;" + "X" * 2000,
    ],
)  # fmt: skip
def test_rule_that_cannot_be_followed_is_refused(rule: str) -> None:
    with pytest.raises(InvalidArguments) as error:
        read_rule(rule)
    assert error.value.hint


def test_zone_names_of_other_programs_are_known() -> None:
    assert known_zone("W. Europe Standard Time") == "Europe/Berlin"
    assert known_zone("eastern standard time") == "America/New_York"
    assert known_zone("/freeassociation.sourceforge.net/Europe/Vienna") == "Europe/Vienna"
    assert known_zone('"europe/berlin"') == "Europe/Berlin"
    for invented in ("Mars/Olympus", "", "../../etc/passwd", "x" * 500):
        assert known_zone(invented) is None


def test_local_times_at_clock_changes() -> None:
    skipped = instant_of(datetime(2026, 3, 29, 2, 30), "Europe/Berlin")
    assert skipped.astimezone(ZoneInfo("Europe/Berlin")).isoformat() == "2026-03-29T03:30:00+02:00"
    repeated = instant_of(datetime(2026, 10, 25, 2, 30), "Europe/Berlin")
    assert repeated == datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    assert local_of(repeated, "Europe/Berlin") == datetime(2026, 10, 25, 2, 30)
