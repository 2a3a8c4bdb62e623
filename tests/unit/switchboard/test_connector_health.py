"""Connector health: down, rejected and looping follow from counts that the connector does not report."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from butlers.switchboard.connectors import (
    HEARTBEAT_S,
    LOOP_REPEATS,
    MAX_SOURCES,
    SILENT_S,
    WINDOW_S,
    IngestCounts,
    IngestOutcome,
    IngestStats,
    connector_health,
)


class SetClock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.seconds, UTC)

    def monotonic(self) -> float:
        return self.seconds


@pytest.mark.parametrize(
    ("state", "silent_s", "counts", "found"),
    [
        ("healthy", 1, IngestCounts(new=3), "healthy"),
        ("healthy", SILENT_S + 1, IngestCounts(new=3), "down"),
        ("healthy", 1, IngestCounts(refused=2, last_refusal="the envelope is bad"), "rejected"),
        ("healthy", 1, IngestCounts(new=1, refused=2), "healthy"),
        ("healthy", 1, IngestCounts(refused=2, noted=2), "rejected"),
        ("healthy", 1, IngestCounts(noted=2), "healthy"),
        ("healthy", 1, IngestCounts(failed=2), "rejected"),
        ("healthy", 1, IngestCounts(new=1, failed=2), "healthy"),
        ("healthy", 1, IngestCounts(duplicate=LOOP_REPEATS), "looping"),
        ("healthy", 1, IngestCounts(duplicate=LOOP_REPEATS - 1), "healthy"),
        ("healthy", 1, IngestCounts(new=10, duplicate=LOOP_REPEATS), "healthy"),
        ("degraded", 1, IngestCounts(), "degraded"),
        ("error", 1, IngestCounts(), "error"),
    ],
)
def test_health_follows_from_heartbeat_and_counts(
    state: str, silent_s: float, counts: IngestCounts, found: str
) -> None:
    health, reason = connector_health(state, None, silent_s, counts)
    assert health == found
    assert bool(reason) is (found != "healthy")


def test_dead_connector_is_reported_within_a_minute() -> None:
    assert HEARTBEAT_S < SILENT_S < 60


def test_counts_are_of_the_last_minute() -> None:
    clock = SetClock()
    stats = IngestStats(clock)
    stats.count("a", IngestOutcome.NEW)
    stats.count("a", IngestOutcome.REFUSED, "bad")
    clock.seconds = WINDOW_S / 2
    stats.count("a", IngestOutcome.DUPLICATE)
    assert stats.counts("a") == IngestCounts(1, 1, 1, last_refusal="bad")
    assert stats.counts("b") == IngestCounts()
    clock.seconds = WINDOW_S + 1
    assert stats.counts("a") == IngestCounts(0, 1, 0, last_refusal="bad")


def test_invented_endpoints_do_not_fill_the_memory() -> None:
    stats = IngestStats(SetClock())
    for number in range(MAX_SOURCES + 5):
        stats.count(str(number), IngestOutcome.REFUSED)
    stats.count("0", IngestOutcome.REFUSED)
    assert stats.counts("0").refused == 2
    assert stats.counts(str(MAX_SOURCES + 1)) == IngestCounts()
