from __future__ import annotations

from datetime import datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from butlers.messenger.limits import RateLimit
from support.clocks import SetClock

WINDOW = timedelta(seconds=60)
NOW = timedelta(0)


def test_event_above_the_limit_waits_until_the_first_leaves_the_window() -> None:
    clock = SetClock()
    limit = RateLimit(clock, 2, WINDOW)
    limit.take("a")
    clock.move(seconds=10)
    limit.take("a")
    assert limit.wait("a") == timedelta(seconds=50)
    clock.move(seconds=50)
    assert limit.wait("a") == NOW


def test_each_key_has_its_own_window() -> None:
    limit = RateLimit(SetClock(), 1, WINDOW)
    limit.take("a")
    assert limit.wait("a") > NOW
    assert limit.wait("b") == NOW
    assert (limit.used("a"), limit.used("b")) == (1, 0)


def test_events_older_than_the_window_are_dropped() -> None:
    clock = SetClock()
    limit = RateLimit(clock, 5, WINDOW)
    for number in range(100):
        limit.take(f"somebody {number}")
    clock.move(seconds=60)
    assert limit.keys() == []


@given(st.integers(1, 5), st.lists(st.integers(0, 40), max_size=80))
def test_no_window_exceeds_the_limit_and_the_announced_wait_suffices(
    allowed: int, pauses: list[int]
) -> None:
    clock = SetClock()
    limit = RateLimit(clock, allowed, WINDOW)
    gone: list[datetime] = []
    for pause in pauses:
        clock.move(seconds=pause)
        if wait := limit.wait("k"):
            assert wait <= WINDOW
            clock.move(seconds=wait.total_seconds())
            assert limit.wait("k") == NOW
        limit.take("k")
        gone.append(clock.now())
        in_window = [moment for moment in gone if moment > clock.now() - WINDOW]
        assert len(in_window) <= allowed


@given(st.integers(1, 3), st.lists(st.integers(-90000, 90000), max_size=40))
def test_clock_set_back_never_waits_longer_than_a_window(allowed: int, moves: list[int]) -> None:
    clock = SetClock()
    limit = RateLimit(clock, allowed, WINDOW)
    for move in moves:
        clock.move(seconds=move)
        assert NOW <= limit.wait("k") <= WINDOW
        limit.take("k")
