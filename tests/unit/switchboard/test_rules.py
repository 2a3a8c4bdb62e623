"""Matching of the owner's rules by sender, domain, header and pattern."""

from __future__ import annotations

import pytest

from butlers.domain.clock import uuid7
from butlers.domain.errors import InvalidArguments
from butlers.domain.triage import RuleAction, RuleKind, TriageRule
from butlers.switchboard.rules import RuleInput, check_pattern, first_match

MAIL = RuleInput(
    "email",
    "Anna@Mail.Example.com",
    "Your parcel is on its way",
    {"list-id": "<offers.example.com>", "x-empty": ""},
)


def rule(kind: RuleKind, value: str, **more: object) -> TriageRule:
    return TriageRule(uuid7(), kind, value, RuleAction.SKIP, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("one", "matches"),
    [
        (rule(RuleKind.SENDER, "anna@mail.example.com"), True),
        (rule(RuleKind.SENDER, "nna@mail.example.com"), False),
        (rule(RuleKind.DOMAIN, "mail.example.com"), True),
        (rule(RuleKind.DOMAIN, "@example.com"), True),
        (rule(RuleKind.DOMAIN, "ample.com"), False),
        (rule(RuleKind.HEADER, "", header="List-Id"), True),
        (rule(RuleKind.HEADER, "OFFERS", header="list-id"), True),
        (rule(RuleKind.HEADER, "bills", header="list-id"), False),
        (rule(RuleKind.HEADER, "", header="X-Empty"), True),
        (rule(RuleKind.HEADER, "", header="List-Unsubscribe"), False),
        (rule(RuleKind.PATTERN, r"\bPARCEL\b"), True),
        (rule(RuleKind.PATTERN, r"^parcel"), False),
        (rule(RuleKind.SENDER, "anna@mail.example.com", channel="email"), True),
        (rule(RuleKind.SENDER, "anna@mail.example.com", channel="telegram"), False),
    ],
)
def test_rule_matches(one: TriageRule, matches: bool) -> None:
    assert (first_match([one], MAIL) is one) is matches


def test_sender_without_a_domain_matches_no_domain_rule() -> None:
    message = RuleInput("console", "example.com", "hello", {})
    assert first_match([rule(RuleKind.DOMAIN, "example.com")], message) is None


def test_first_matching_rule_decides() -> None:
    first, second = rule(RuleKind.PATTERN, "parcel"), rule(RuleKind.DOMAIN, "example.com")
    assert first_match([first, second], MAIL) is first
    assert first_match([second, first], MAIL) is second


def test_invalid_pattern_is_rejected_when_the_rule_is_added() -> None:
    with pytest.raises(InvalidArguments, match="bad pattern"):
        check_pattern("(")


@pytest.mark.parametrize(
    ("one", "reason"),
    [
        (TriageRule(uuid7(), RuleKind.SENDER, "a", RuleAction.ROUTE), "target"),
        (TriageRule(uuid7(), RuleKind.SENDER, "a", RuleAction.SKIP, target="x"), "target"),
        (TriageRule(uuid7(), RuleKind.HEADER, "a", RuleAction.SKIP), "header"),
        (TriageRule(uuid7(), RuleKind.SENDER, "a", RuleAction.SKIP, header="x"), "header"),
        (TriageRule(uuid7(), RuleKind.PATTERN, " ", RuleAction.SKIP), "empty"),
    ],
)
def test_rule_that_could_never_act_is_rejected(one: TriageRule, reason: str) -> None:
    with pytest.raises(InvalidArguments, match=reason) as rejected:
        one.check()
    assert rejected.value.hint
