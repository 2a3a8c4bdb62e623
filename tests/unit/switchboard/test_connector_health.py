"""How a connector is: down, rejected and looping are seen by the door, whatever it says of itself."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from butlers.switchboard.connector_health import HEARTBEAT_S, MANY, SILENT_S, condition
from butlers.switchboard.ingest_stats import MOST_SOURCES, WINDOW_S, Counts, IngestStats, Seen


class SetClock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.seconds, UTC)

    def monotonic(self) -> float:
        return self.seconds


@pytest.mark.parametrize(
    ("state", "silent_s", "seen", "found"),
    [
        ("healthy", 1, Counts(new=3), "healthy"),
        ("healthy", SILENT_S + 1, Counts(new=3), "down"),
        ("healthy", 1, Counts(refused=2, last_refusal="the envelope is bad"), "rejected"),
        ("healthy", 1, Counts(new=1, refused=2), "healthy"),
        ("healthy", 1, Counts(refused=2, noted=2), "rejected"),
        ("healthy", 1, Counts(noted=2), "healthy"),
        ("healthy", 1, Counts(failed=2), "rejected"),
        ("healthy", 1, Counts(new=1, failed=2), "healthy"),
        ("healthy", 1, Counts(duplicate=MANY), "looping"),
        ("healthy", 1, Counts(duplicate=MANY - 1), "healthy"),
        ("healthy", 1, Counts(new=10, duplicate=MANY), "healthy"),
        ("degraded", 1, Counts(), "degraded"),
        ("error", 1, Counts(), "error"),
    ],
)
def test_what_is_made_of_it(state: str, silent_s: float, seen: Counts, found: str) -> None:
    health, why = condition(state, None, silent_s, seen)
    assert health == found
    assert bool(why) is (found != "healthy")


def test_a_dead_one_is_seen_within_a_minute() -> None:
    assert HEARTBEAT_S < SILENT_S < 60


def test_the_tally_is_of_the_last_minute() -> None:
    clock = SetClock()
    tally = IngestStats(clock)
    tally.count("a", Seen.NEW)
    tally.count("a", Seen.REFUSED, "bad")
    clock.seconds = WINDOW_S / 2
    tally.count("a", Seen.DUPLICATE)
    assert tally.counts("a") == Counts(1, 1, 1, last_refusal="bad")
    assert tally.counts("b") == Counts()
    clock.seconds = WINDOW_S + 1
    assert tally.counts("a") == Counts(0, 1, 0, last_refusal="bad")


def test_made_up_names_do_not_fill_the_memory() -> None:
    tally = IngestStats(SetClock())
    for number in range(MOST_SOURCES + 5):
        tally.count(str(number), Seen.REFUSED)
    tally.count("0", Seen.REFUSED)
    assert tally.counts("0").refused == 2
    assert tally.counts(str(MOST_SOURCES + 1)) == Counts()
