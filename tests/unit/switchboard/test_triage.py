"""Triage: rules, reflexes, threads and triggers decide in this order, else the general butler."""

from __future__ import annotations

from structlog.testing import capture_logs

from butlers.domain.clock import uuid7
from butlers.domain.message import RouteDecision
from butlers.domain.registration import Registration
from butlers.domain.triage import RuleAction, RuleKind, TriageRule
from butlers.switchboard.registry import candidates
from butlers.switchboard.rules import RuleInput
from butlers.switchboard.triage import Affinity, TriageStep, triage_steps

WEIGHT = r"(?i)weight\s+\d+"


def butler(
    name: str, *reflexes: str, triggers: tuple[str, ...] = (), infrastructure: bool = False
) -> Registration:
    return Registration(
        name,
        "http://127.0.0.1:9/mcp",
        "test",
        infrastructure=infrastructure,
        reflexes=reflexes,
        triggers=triggers,
    )


def steps(
    text: str,
    registrations: list[Registration],
    rules: tuple[TriageRule, ...] = (),
    affinity: Affinity = Affinity(),  # noqa: B008
) -> list[TriageStep]:
    return triage_steps(RuleInput("console", "owner", text, {}), registrations, rules, affinity)


def decided(text: str, registrations: list[Registration]) -> RouteDecision:
    decision = steps(text, registrations)[-1].decision
    assert decision is not None
    return decision


def test_reflex_decides_and_its_pattern_is_the_reason() -> None:
    decision = decided("Weight 80", [butler("finance", "spent .+"), butler("health", WEIGHT)])
    assert (decision.target, decision.rule) == ("health", "reflex")
    assert repr(WEIGHT) in decision.reason


def test_reflex_matches_whole_messages_only() -> None:
    assert decided("my weight 80 is fine", [butler("health", WEIGHT)]).rule == "fallback"
    assert decided("  weight 80\n", [butler("health", WEIGHT)]).rule == "reflex"


def test_trigger_matches_anywhere_in_the_message() -> None:
    found = decided("what was my Weight again?", [butler("health", triggers=("weight",))])
    assert (found.target, found.rule) == ("health", "trigger")


def test_first_butler_with_a_matching_reflex_wins() -> None:
    """The registry lists butlers by name."""
    both = [butler("diet", WEIGHT), butler("health", WEIGHT)]
    assert decided("weight 80", both).target == "diet"
    assert decided("weight 80", both[::-1]).target == "health"


def test_steps_run_in_order_and_each_says_what_it_found() -> None:
    everyone = [
        butler("a-rule"),
        butler("b-reflex", WEIGHT),
        butler("c-thread"),
        butler("d-trigger", triggers=("weight",)),
        butler("general"),
    ]
    rule = TriageRule(uuid7(), RuleKind.SENDER, "owner", RuleAction.ROUTE, target="a-rule")
    thread = Affinity(frozenset({"c-thread"}), "earlier messages of the thread went there")
    found = [
        (step.name, step.decision.target if step.decision else None)
        for step in steps("weight 80", everyone, (rule,), thread)
    ]
    assert found == [("rules", "a-rule")]
    assert steps("weight 80", everyone, (), thread)[-1].decision == RouteDecision(
        "b-reflex", "reflex", f"matches {WEIGHT!r}"
    )
    assert steps("my weight", everyone, (), thread)[-1].decision == RouteDecision(
        "c-thread", "affinity", "earlier messages of the thread went there"
    )
    last = steps("my weight", everyone)
    assert [step.name for step in last] == ["rules", "reflexes", "affinity", "triggers"]
    assert all(step.found for step in last)
    assert [step.name for step in steps("hello", everyone)][-1] == "fallback"


def test_thread_of_several_butlers_does_not_decide() -> None:
    both = [butler("health"), butler("travel")]
    split = Affinity(frozenset({"health", "travel"}), "earlier messages of the thread went there")
    found = steps("hello", both, (), split)
    assert found[2].found == "several butlers: health, travel"
    assert found[-1].decision is not None
    assert found[-1].decision.rule == "fallback"


def test_thread_of_a_removed_butler_does_not_decide() -> None:
    gone = Affinity(frozenset({"poker"}), "earlier messages of the thread went there")
    assert steps("hello", [butler("health")], (), gone)[-1].name == "fallback"


def test_infrastructure_is_never_a_target() -> None:
    decision = decided("weight 80", [butler("messenger", ".*", infrastructure=True)])
    assert (decision.target, decision.rule) == ("general", "fallback")


def test_butler_with_another_contract_version_is_no_candidate() -> None:
    later = Registration("later", "http://127.0.0.1:9/mcp", "x", contract_min=2, contract_max=3)
    both = Registration("both", "http://127.0.0.1:9/mcp", "x", contract_min=1, contract_max=3)
    assert [one.name for one in candidates([later, both])] == ["both"]


def test_message_that_nothing_matches_goes_to_general() -> None:
    decision = decided("hello", [])
    assert (decision.target, decision.rule) == ("general", "fallback")
    assert decision.reason
    assert decided("hello", [butler("health", WEIGHT), butler("idle")]) == decision


def test_invalid_pattern_is_ignored_and_logged_once() -> None:
    bad = "(?P<unclosed-in-test-triage"
    registrations = [butler("broken", bad, WEIGHT), butler("health", WEIGHT)]
    with capture_logs() as logs:
        assert decided("weight 80", registrations).target == "broken"  # by its good pattern
        broken = butler("broken", bad, triggers=(bad,))
        assert decided("weight 81", [broken, butler("health", WEIGHT)]).target == "health"
        assert decided("weight eighty-one", [broken]).rule == "fallback"
    events = [entry["event"] for entry in logs]
    assert events == ["advertised reflex ignored", "pattern ignored"]
    assert {entry["pattern"] for entry in logs} == {bad}
    assert {entry["log_level"] for entry in logs} == {"warning"}


def test_backtracking_pattern_runs_in_linear_time() -> None:
    """RE2 runs in linear time, whatever a butler advertises."""
    evil = butler("evil", r"(a*)*b", triggers=(r"(a*)*b",))
    assert decided("a" * 900, [evil]).rule == "fallback"
