from __future__ import annotations

from datetime import timedelta

from butlers.domain.delivery import AttemptOutcome
from butlers.messenger.deliveries import LineAttempt
from butlers.messenger.limits import RULES, DeliveryLimits
from support.clocks import SetClock

A, B = "webhook:a", "webhook:b"


def traffic(clock: SetClock, *, per_minute: int = 60, per_recipient: int = 10) -> DeliveryLimits:
    return DeliveryLimits(clock, per_minute=per_minute, per_recipient_per_minute=per_recipient)


def test_failing_line_is_held_and_other_lines_work() -> None:
    flow = traffic(SetClock())
    for _ in range(RULES.failures):
        flow.ended(A, AttemptOutcome.UNAVAILABLE)
    hold = flow.hold(A, "anna")
    assert hold is not None
    assert "failed 5 times" in hold.reason
    assert flow.hold(B, "anna") is None


def test_refusal_counts_as_a_working_line() -> None:
    flow = traffic(SetClock())
    for _ in range(RULES.failures - 1):
        flow.ended(A, AttemptOutcome.FAILED)
    flow.ended(A, AttemptOutcome.REFUSED)
    flow.ended(A, AttemptOutcome.FAILED)
    assert flow.hold(A, "anna") is None


def test_recipients_have_separate_rate_limits() -> None:
    clock = SetClock()
    flow = traffic(clock, per_recipient=2)
    for _ in range(2):
        flow.started(A, "anna")
    assert flow.hold(A, "anna") is not None
    assert flow.hold(A, "ben") is None
    clock.move(seconds=60)
    assert flow.hold(A, "anna") is None


def test_requested_pause_holds_the_line() -> None:
    clock = SetClock()
    flow = traffic(clock)
    flow.pause(A, clock.now() + timedelta(seconds=90))
    hold = flow.hold(A, "anna")
    assert hold is not None
    assert hold.until == clock.now() + timedelta(seconds=90)
    clock.move(seconds=90)
    assert flow.hold(A, "anna") is None


def test_limits_are_rebuilt_from_recorded_attempts() -> None:
    clock = SetClock()

    def tried(seconds_ago: float, outcome: AttemptOutcome | None, line: str = A) -> LineAttempt:
        at = clock.now() - timedelta(seconds=seconds_ago)
        return LineAttempt(line, "anna", at, at if outcome else None, outcome)

    flow = traffic(clock, per_minute=3)
    failed = [tried(100 + n, AttemptOutcome.FAILED) for n in range(5, 0, -1)]
    flow.rebuild([*failed[:4], tried(50, AttemptOutcome.FAILED), tried(40, None, B)])
    hold = flow.hold(A, "ben")  # its last failure is fifty seconds ago
    assert hold is not None
    assert hold.until == clock.now() + timedelta(seconds=10)
    assert flow.hold(B, "ben") is None
    described = flow.describe()
    assert [(line["line"], line["breaker"]) for line in described["lines"]] == [
        (A, "open"),
        (B, "closed"),
    ]
    assert described["recipients_last_minute"] == {"anna": 2}
