"""Suggested rules: the narrowest one that covers what the owner approved, and what it would let through."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any

from butlers.domain.approval import ActionStatus
from butlers.domain.clock import uuid7
from butlers.modules.approvals.actions import PendingAction
from butlers.modules.approvals.rules import ApprovalRule, Constraint, ConstraintKind
from butlers.tools.declaration import ToolSpec

LOOK_BACK = timedelta(days=30)
ENOUGH = 3  # equal decisions after which a rule is suggested
RULE_LIFETIME = timedelta(days=30)  # of a rule for a tool of high risk
_APPROVED = (ActionStatus.APPROVED, ActionStatus.EXECUTED)


def narrowest_rule(
    action: PendingAction, spec: ToolSpec | None, description: str, now: datetime
) -> ApprovalRule:
    """Return the rule that admits this call again and as little else as possible.

    Arguments that differ in every call by their nature, such as the id of a message, may be anything.
    """
    unique = spec.unique if spec else ()
    constraints = {
        name: Constraint(ConstraintKind.ANY)
        if name in unique
        else Constraint(ConstraintKind.EXACT, value)
        for name, value in action.tool_args.items()
        if value is not None
    }
    return ApprovalRule(
        id=uuid7(),
        tool_name=action.tool_name,
        constraints=constraints,
        description=description,
        created_at=now,
        created_from=action.id,
        expires_at=now + RULE_LIFETIME if action.risk_tier.is_strict else None,
        trusted_only=action.is_trusted,
    )


def admitted_by(rule: ApprovalRule, past: Iterable[PendingAction]) -> list[PendingAction]:
    """Return the earlier calls that the rule would have let through."""
    return [
        one
        for one in past
        if one.id != rule.created_from
        and rule.admits(one.tool_name, one.tool_args, trusted=one.is_trusted)
    ]


def preview(rule: ApprovalRule, past: Iterable[PendingAction], now: datetime) -> dict[str, Any]:
    admitted = admitted_by(rule, past)
    return {
        "tool_name": rule.tool_name,
        "arg_constraints": {name: one.as_dict() for name, one in rule.constraints.items()},
        "expires_at": rule.expires_at,
        "trusted_only": rule.trusted_only,
        "days": LOOK_BACK.days,
        "would_have_admitted": [
            {
                "id": one.id,
                "summary": one.agent_summary,
                "status": one.shown(now)["status"],
                "requested_at": one.requested_at,
            }
            for one in admitted
        ],
    }


def repeated_decisions(
    past: Sequence[PendingAction], specs: dict[str, ToolSpec]
) -> list[PendingAction]:
    """Return one action of each kind that the owner approved several times and never rejected."""

    def kind(action: PendingAction) -> tuple[str, str]:
        spec = specs.get(action.tool_name)
        rule = narrowest_rule(action, spec, "", action.requested_at)
        named = sorted((name, str(one.as_dict())) for name, one in rule.constraints.items())
        return action.tool_name, f"{action.is_trusted}{named}"

    found = []
    for _kind, group in groupby(sorted(past, key=kind), key=kind):
        equal = list(group)
        approved = [one for one in equal if one.status in _APPROVED and one.decided_by != "rule"]
        rejected = [one for one in equal if one.status is ActionStatus.REJECTED]
        if len(approved) >= ENOUGH and not rejected:
            found.append(approved[0])
    return found
