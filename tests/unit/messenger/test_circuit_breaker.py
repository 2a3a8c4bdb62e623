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


def test_it_opens_after_failures_in_a_row_and_not_before() -> None:
    clock = SetClock()
    breaker = CircuitBreaker(clock, RULES)
    for _ in range(5):  # never three in a row
        breaker.failed()
        breaker.failed()
        assert breaker.state is BreakerState.CLOSED
        breaker.succeeded()
    assert broken(clock).state is BreakerState.OPEN


def test_while_it_is_open_everybody_waits_for_the_rest_of_the_pause() -> None:
    clock = SetClock()
    breaker = broken(clock)
    clock.move(seconds=20)
    assert breaker.wait() == timedelta(seconds=40)


def test_half_open_it_lets_one_through_and_the_others_wait_for_it() -> None:
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


def test_a_probe_that_fails_opens_it_for_another_pause() -> None:
    clock = SetClock()
    breaker = broken(clock)
    clock.move(seconds=60)
    breaker.started()
    breaker.failed()
    assert breaker.state is BreakerState.OPEN
    assert breaker.wait() == RULES.pause


def test_a_probe_that_was_dropped_leaves_room_for_the_next() -> None:
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
def test_whatever_happens_nobody_waits_longer_than_a_pause_and_one_probe_goes_at_a_time(
    taken: list[str | int],
) -> None:
    clock = SetClock()
    breaker = CircuitBreaker(clock, RULES)
    probing = False
    for step in taken:
        if isinstance(step, int):  # also a clock that is set back
            clock.move(seconds=step)
            probing = False  # a probe that says nothing for a pause is given up
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
    assert breaker.wait() == NOW  # nothing shuts a line for good
