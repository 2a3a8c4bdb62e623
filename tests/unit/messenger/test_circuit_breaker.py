from __future__ import annotations

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from butlers.messenger.limits import BreakerRules, BreakerState, CircuitBreaker
from support.clocks import SetClock

RULES = BreakerRules(failures=3, pause=timedelta(seconds=60))
NOW = timedelta(0)


def broken(clock: SetClock) -> CircuitBreaker:
    breaker = CircuitBreaker(clock, RULES)
    for _ in range(RULES.failures):
        assert breaker.wait() == NOW
        breaker.started()
        breaker.failed()
    return breaker


def test_breaker_opens_after_the_given_failures_in_a_row() -> None:
    clock = SetClock()
    breaker = CircuitBreaker(clock, RULES)
    for _ in range(5):  # never three in a row
        breaker.failed()
        breaker.failed()
        assert breaker.state is BreakerState.CLOSED
        breaker.succeeded()
    assert broken(clock).state is BreakerState.OPEN


def test_open_breaker_waits_for_the_rest_of_the_pause() -> None:
    clock = SetClock()
    breaker = broken(clock)
    clock.move(seconds=20)
    assert breaker.wait() == timedelta(seconds=40)


def test_half_open_breaker_lets_one_probe_through() -> None:
    clock = SetClock()
    breaker = broken(clock)
    clock.move(seconds=60)
    assert breaker.state is BreakerState.HALF_OPEN
    assert breaker.wait() == NOW
    breaker.started()
    assert breaker.wait() == RULES.look_again
    breaker.succeeded()
    assert breaker.state is BreakerState.CLOSED
    assert breaker.wait() == NOW


def test_failed_probe_opens_the_breaker_again() -> None:
    clock = SetClock()
    breaker = broken(clock)
    clock.move(seconds=60)
    breaker.started()
    breaker.failed()
    assert breaker.state is BreakerState.OPEN
    assert breaker.wait() == RULES.pause


def test_dropped_probe_allows_the_next() -> None:
    clock = SetClock()
    breaker = broken(clock)
    clock.move(seconds=60)
    breaker.started()
    breaker.dropped()
    assert breaker.wait() == NOW


steps = st.lists(
    st.one_of(st.sampled_from(["go", "well", "badly", "dropped"]), st.integers(-7200, 7200)),
    max_size=60,
)


@given(steps)
def test_wait_is_at_most_a_pause_with_one_probe_at_a_time(
    taken: list[str | int],
) -> None:
    clock = SetClock()
    breaker = CircuitBreaker(clock, RULES)
    probing = False
    for step in taken:
        if isinstance(step, int):  # also sets the clock back
            clock.move(seconds=step)
            probing = False  # a probe without an outcome is dropped after a pause
        elif step == "go" and breaker.wait() == NOW:
            assert not (probing and breaker.state is not BreakerState.CLOSED)
            probing = breaker.state is BreakerState.HALF_OPEN
            breaker.started()
        elif step == "well":
            breaker.succeeded()
            probing = False
        elif step == "badly":
            breaker.failed()
            probing = False
        elif step == "dropped":
            breaker.dropped()
            probing = False
        assert NOW <= breaker.wait() <= RULES.pause
        if breaker.failures < RULES.failures:
            assert breaker.wait() == NOW
    clock.move(seconds=RULES.pause.total_seconds() + 7200 * len(taken))
    assert breaker.wait() == NOW  # a line never stays closed forever
