"""Which butler a message is for: by advertised triggers, first by name, else the general one."""

from __future__ import annotations

from structlog.testing import capture_logs

from butlers.domain.registration import Registration
from butlers.ingest.triage import decide


def butler(name: str, *triggers: str, infrastructure: bool = False) -> Registration:
    return Registration(
        name, "http://127.0.0.1:9/mcp", "test", infrastructure=infrastructure, triggers=triggers
    )


WEIGHT = r"(?i)weight\s+\d+"


def test_a_trigger_decides_and_the_reason_is_kept() -> None:
    decision = decide("Weight 80", [butler("finance", "spent .+"), butler("health", WEIGHT)])
    assert (decision.target, decision.rule) == ("health", "trigger")
    assert repr(WEIGHT) in decision.reason


def test_the_whole_message_must_match() -> None:
    assert decide("my weight 80 is fine", [butler("health", WEIGHT)]).rule == "fallback"
    assert decide("  weight 80\n", [butler("health", WEIGHT)]).rule == "trigger"


def test_the_first_of_those_given_wins() -> None:
    """The registry hands them over by name."""
    both = [butler("diet", WEIGHT), butler("health", WEIGHT)]
    assert decide("weight 80", both).target == "diet"
    assert decide("weight 80", both[::-1]).target == "health"


def test_infrastructure_is_never_a_target() -> None:
    decision = decide("weight 80", [butler("messenger", ".*", infrastructure=True)])
    assert (decision.target, decision.rule) == ("general", "fallback")


def test_what_nobody_knows_goes_to_general() -> None:
    decision = decide("hello", [])
    assert (decision.target, decision.rule) == ("general", "fallback")
    assert decision.reason
    assert decide("hello", [butler("health", WEIGHT), butler("idle")]) == decision


def test_a_bad_pattern_is_left_out_and_said_once() -> None:
    bad = "(?P<unclosed-in-test-triage"
    registrations = [butler("broken", bad, WEIGHT), butler("health", WEIGHT)]
    with capture_logs() as logs:
        assert decide("weight 80", registrations).target == "broken"  # by its good pattern
        assert decide("weight 81", [butler("broken", bad), butler("health", WEIGHT)]).target == (
            "health"
        )
    (said,) = [entry for entry in logs if entry["event"] == "advertised trigger ignored"]
    assert said["pattern"] == bad
    assert said["log_level"] == "warning"


def test_a_pattern_that_would_take_forever_does_not() -> None:
    """RE2 runs in linear time, whatever a butler advertises."""
    evil = butler("evil", r"(a*)*b")
    assert decide("a" * 900, [evil]).rule == "fallback"
