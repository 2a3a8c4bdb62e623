"""Standing rules: what they admit, their order and their bounds, against a plain reference."""

from __future__ import annotations

import json
import random
import re
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from butlers.domain.approval import RiskTier
from butlers.domain.errors import InvalidArguments
from butlers.modules.approvals.rules import (
    ApprovalRule,
    Constraint,
    ConstraintKind,
    best_rule,
    matches,
)

NOW = datetime(2026, 5, 12, 12, tzinfo=UTC)
VALUES: tuple[Any, ...] = (
    "anna", "ann", "anna@x.org", "a\nb", "", "*", 1, 1.0, True, 0, False, None, [], ["a"], {"k": 1},
)  # fmt: skip
PATTERNS = ("*", "a*", "*@x.org", "?", "an?a", "a*a*", "anna", "**", "*b")
NAMES = ("to", "text", "amount")


def rule(number: int = 1, /, **changes: Any) -> ApprovalRule:
    given: dict[str, Any] = {
        "id": UUID(int=number),
        "tool_name": "send",
        "constraints": {"to": Constraint(ConstraintKind.EXACT, "anna")},
        "description": "Write to Anna.",
        "created_at": NOW,
    }
    return ApprovalRule(**{**given, **changes})


def expected_match(pattern: str, text: str) -> bool:
    """The reference: a regular expression in which wildcards stand for printable characters."""
    parts = {"*": "P*", "?": "P"}
    words = "".join(parts.get(char, re.escape(char)) for char in pattern)
    plain = "".join(char if char.isprintable() else "\x00" for char in text)
    return re.fullmatch(words.replace("P", "[^\x00]"), plain) is not None


def expected_admission(
    one: ApprovalRule, tool: str, arguments: dict[str, Any], trusted: bool
) -> bool:
    """The reference: read the text of the rule word by word."""
    if one.tool_name != tool:
        return False
    if one.trusted_only and not trusted:
        return False
    for name, value in arguments.items():
        if value is not None and name not in one.constraints:
            return False
    for name, constraint in one.constraints.items():
        value = arguments.get(name)
        if constraint.kind is ConstraintKind.EXACT:
            same_kind = type(value) is type(constraint.value)
            if not same_kind or json.dumps(value) != json.dumps(constraint.value):
                return False
        if constraint.kind is ConstraintKind.PATTERN and not (
            isinstance(value, str) and expected_match(constraint.value, value)
        ):
            return False
    return True


def random_constraint(chance: random.Random) -> Constraint:
    kind = chance.choice(list(ConstraintKind))
    if kind is ConstraintKind.PATTERN:
        return Constraint(kind, chance.choice(PATTERNS))
    return Constraint(kind, chance.choice(VALUES) if kind is ConstraintKind.EXACT else None)


def random_rule(chance: random.Random, number: int) -> ApprovalRule:
    names = chance.sample(NAMES, chance.randint(0, len(NAMES)))
    return rule(
        number,
        tool_name=chance.choice(("send", "pay")),
        constraints={name: random_constraint(chance) for name in names},
        created_at=NOW - timedelta(days=chance.randint(0, 3)),
        expires_at=chance.choice((None, NOW + timedelta(1), NOW)),
        max_uses=chance.choice((None, 1, 3)),
        use_count=chance.choice((0, 1)),
        active=chance.random() < 0.9,
        trusted_only=chance.random() < 0.5,
    )


@pytest.mark.parametrize("seed", range(20))
def test_gate_agrees_with_the_reference(seed: int) -> None:
    chance = random.Random(seed)
    for _round in range(200):
        rules = [random_rule(chance, number) for number in range(1, chance.randint(2, 6))]
        arguments = {
            name: chance.choice(VALUES) for name in chance.sample(NAMES, chance.randint(0, 3))
        }
        tool, trusted = chance.choice(("send", "pay")), chance.random() < 0.5
        allowed = [
            one
            for one in rules
            if one.active
            and (one.expires_at is None or one.expires_at > NOW)
            and (one.max_uses is None or one.use_count < one.max_uses)
            and expected_admission(one, tool, arguments, trusted)
        ]
        found = best_rule(rules, tool, arguments, trusted=trusted, now=NOW)
        assert (found is None) == (not allowed), (rules, tool, arguments, trusted)
        assert found is None or found in allowed


@pytest.mark.parametrize("seed", range(10))
def test_patterns_agree_with_the_reference(seed: int) -> None:
    chance = random.Random(seed)
    for _round in range(2000):
        pattern = "".join(chance.choice("ab*?.") for _char in range(chance.randint(1, 6)))
        text = "".join(chance.choice("ab.\n\u200b") for _char in range(chance.randint(0, 8)))
        assert matches(pattern, text) == expected_match(pattern, text), (pattern, text)


def test_line_break_does_not_pass_a_pattern() -> None:
    assert matches("*@x.org", "anna@x.org")
    assert not matches("*@x.org", "evil@y.org\n@x.org")


def test_order_is_specificity_bound_age_id() -> None:
    anything = {"to": Constraint(ConstraintKind.ANY)}
    pattern = {"to": Constraint(ConstraintKind.PATTERN, "a*")}
    rules = [
        rule(1, constraints=anything, max_uses=1),
        rule(2, constraints=pattern),
        rule(3, created_at=NOW - timedelta(1), max_uses=1),
        rule(4),
        rule(5, max_uses=1),
        rule(6, max_uses=1),
    ]
    order = []
    while rules:
        best = best_rule(rules, "send", {"to": "anna"}, trusted=True, now=NOW)
        assert best is not None
        order.append(best.id.int)
        rules.remove(best)
    assert order == [6, 5, 3, 4, 2, 1]


@pytest.mark.parametrize("risk", [RiskTier.HIGH, RiskTier.CRITICAL])
def test_strict_tiers_need_a_constraint_and_a_bound(risk: RiskTier) -> None:
    wide = {"to": Constraint(ConstraintKind.PATTERN, "*?")}
    with pytest.raises(InvalidArguments, match="exact value or a pattern"):
        rule(constraints=wide, max_uses=1).check(risk)
    with pytest.raises(InvalidArguments, match="needs an end"):
        rule().check(risk)
    rule(max_uses=1).check(risk)
    rule(constraints=wide).check(RiskTier.MEDIUM)


@pytest.mark.parametrize(
    "given",
    [
        "anna",
        {"type": "exact"},
        {"type": "any", "value": 1},
        {"type": "pattern", "value": 1},
        {"type": "pattern", "value": "a" * 201},
        {"type": "regex", "value": "a"},
        {"type": "exact", "value": 1, "more": 2},
    ],
)
def test_unclear_constraints_are_refused(given: Any) -> None:
    with pytest.raises(InvalidArguments):
        Constraint.parse("to", given)
