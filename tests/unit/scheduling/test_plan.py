"""Plan of a due task, and spreading of runs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from butlers.domain.schedule import DispatchMode, Missed, RunOutcome, Task, TaskSource, run_id_of
from butlers.scheduling.plan import MAX_COUNTED, WINDOW, PlanRules, format_duration, plan, stagger

NINE = datetime(2026, 5, 13, 9, tzinfo=UTC)
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
RULES = PlanRules("health", MINUTE, WINDOW)
TASK_ID = UUID("0190a1b2-0000-7000-8000-000000000001")


def task(cron: str | None = "0 * * * *", **changes: object) -> Task:
    known: dict[str, object] = {
        "id": TASK_ID,
        "name": "look",
        "mode": DispatchMode.PROMPT,
        "source": TaskSource.TOML,
        "created_by": "butler.toml",
        "cron": cron,
        "prompt": "look around",
        "next_run_at": NINE,
    }
    return Task(**(known | changes))  # type: ignore[arg-type]


def test_on_time() -> None:
    made = plan(task(), NINE + timedelta(seconds=2), RULES)
    assert [(due.due_at, due.outcome, due.delay) for due in made.due] == [
        (NINE, None, timedelta(0))
    ]
    assert made.next_run_at == NINE + HOUR
    assert made.question is None


@pytest.mark.parametrize(
    ("missed", "within", "outcomes", "asks"),
    [
        (Missed.SKIP, None, [RunOutcome.MISSED, RunOutcome.MISSED], False),
        (Missed.ONCE, None, [RunOutcome.SKIPPED, None], False),
        (Missed.ONCE, 3600.0, [RunOutcome.SKIPPED, None], False),
        (Missed.ONCE, 600.0, [RunOutcome.MISSED, RunOutcome.MISSED], False),
        (Missed.ASK, None, [RunOutcome.MISSED, RunOutcome.MISSED], True),
        (Missed.ASK, 600.0, [RunOutcome.MISSED, RunOutcome.MISSED], False),
    ],
)
def test_after_downtime(
    missed: Missed, within: float | None, outcomes: list[RunOutcome | None], asks: bool
) -> None:
    """Down from before nine until half past eleven: nine, ten and eleven were missed."""
    found = task(missed=missed, missed_within_s=within)
    made = plan(found, NINE + timedelta(hours=2, minutes=30), RULES)
    assert [due.outcome for due in made.due] == outcomes
    assert [due.due_at for due in made.due] == [NINE, NINE + 2 * HOUR]
    assert all(due.detail for due in made.due)
    assert "2 due times" in (made.due[0].detail or "")
    assert made.next_run_at == NINE + 3 * HOUR
    assert (made.question is not None) is asks
    if made.question:
        assert "3 times" in made.question
        assert str(TASK_ID) in made.question


@pytest.mark.parametrize(
    ("missed", "first"),
    [
        (Missed.SKIP, RunOutcome.MISSED),
        (Missed.ONCE, RunOutcome.SKIPPED),
        (Missed.ASK, RunOutcome.MISSED),
    ],
)
def test_tick_on_time_for_the_last_due_time(missed: Missed, first: RunOutcome) -> None:
    made = plan(task(missed=missed), NINE + HOUR + timedelta(seconds=30), RULES)
    assert [(due.due_at, due.outcome) for due in made.due] == [(NINE, first), (NINE + HOUR, None)]
    assert made.question is None


def test_a_year_of_missed_minutes_is_one_entry() -> None:
    now = NINE + timedelta(days=365, seconds=20)
    made = plan(task("* * * * *"), now, RULES)
    earlier, latest = made.due
    assert earlier.detail is not None
    assert f"more than {MAX_COUNTED}" in earlier.detail
    assert latest.due_at == now - timedelta(seconds=20)
    assert made.next_run_at == latest.due_at + MINUTE


def test_task_ends_at_its_last_time() -> None:
    """No run is due after until_at, nor made up for when the butler was down until later."""
    ends = task(until_at=NINE + HOUR, missed=Missed.ONCE)
    assert plan(ends, NINE, RULES).next_run_at == NINE + HOUR
    late = plan(ends, NINE + 5 * HOUR, RULES)
    assert [due.due_at for due in late.due] == [NINE, NINE + HOUR]
    assert late.next_run_at is None


def test_one_time_task_has_no_next_run() -> None:
    once = task(None, run_at=NINE, missed=Missed.ONCE)
    assert plan(once, NINE, RULES).next_run_at is None
    late = plan(once, NINE + 5 * HOUR, RULES)
    assert [(due.outcome, due.detail) for due in late.due] == [(None, "5 h late")]


def test_a_spread_run_starts_after_its_due_time_and_before_the_next() -> None:
    found = task("*/5 * * * *", exact=False)
    (due,) = plan(found, NINE, RULES).due
    assert timedelta(0) <= due.delay < timedelta(minutes=5)
    assert due.due_at == NINE
    assert due.delay == stagger("health", "look", timedelta(minutes=5))
    (unspread,) = plan(found, NINE, PlanRules("health", MINUTE, timedelta(0))).due
    assert unspread.delay == timedelta(0)
    (later,) = plan(found, NINE + due.delay, PlanRules("health", HOUR, WINDOW)).due
    assert later.delay == timedelta(0)  # the tick was late; the start is not


@given(st.text(), st.text(), st.timedeltas(timedelta(seconds=1), timedelta(days=400)))
def test_stagger_is_stable_and_within_its_bounds(
    butler: str, name: str, cadence: timedelta
) -> None:
    delay = stagger(butler, name, cadence)
    assert delay == stagger(butler, name, cadence)
    assert timedelta(0) <= delay < WINDOW
    assert delay < cadence


def test_stagger_spreads() -> None:
    starts = {stagger("health", f"task {number}", timedelta(days=1)) for number in range(50)}
    assert len(starts) > 40


def test_one_due_time_has_one_id() -> None:
    berlin = NINE.astimezone(tz=None)
    assert run_id_of(TASK_ID, NINE) == run_id_of(TASK_ID, berlin)
    assert run_id_of(TASK_ID, NINE) != run_id_of(TASK_ID, NINE + MINUTE)


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (timedelta(seconds=90), "90 s"),
        (timedelta(minutes=119), "119 min"),
        (timedelta(days=3), "3 d"),
    ],
)
def test_durations_are_formatted_in_one_unit(duration: timedelta, text: str) -> None:
    assert format_duration(duration) == text
