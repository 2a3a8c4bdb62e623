"""Standing rules: which calls they admit, their order, and their rows.

A rule admits a call only if it names every argument of it: what the rule does not say is not allowed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

import asyncpg

from butlers.db.database import Connection
from butlers.domain.approval import RiskTier
from butlers.domain.errors import InvalidArguments

MAX_PATTERN = 200  # characters
_FIRST_PRINTABLE = " "


class ConstraintKind(StrEnum):
    EXACT = "exact"  # this value
    PATTERN = (
        "pattern"  # a text; * stands for any characters and ? for one, but not for line breaks
    )
    ANY = "any"


@dataclass(frozen=True, slots=True)
class Constraint:
    kind: ConstraintKind
    value: Any = None

    @classmethod
    def parse(cls, argument: str, given: Any) -> Constraint:
        """Read ``{"type": "exact", "value": …}``; the type may also be ``pattern`` or ``any``."""
        if not isinstance(given, dict) or given.get("type") not in list(ConstraintKind):
            raise InvalidArguments(
                f"the constraint of {argument!r} has no valid type",
                hint='such as {"type": "exact", "value": "anna"}, or the type "pattern" or "any"',
            )
        kind = ConstraintKind(given["type"])
        wanted = {"type"} if kind is ConstraintKind.ANY else {"type", "value"}
        if set(given) != wanted:
            raise InvalidArguments(
                f"the constraint of {argument!r} needs exactly: {', '.join(sorted(wanted))}"
            )
        value = given.get("value")
        if kind is ConstraintKind.PATTERN and not (
            isinstance(value, str) and 0 < len(value) <= MAX_PATTERN
        ):
            raise InvalidArguments(
                f"the pattern of {argument!r} must be a text of 1 to {MAX_PATTERN} characters"
            )
        return cls(kind, value)

    def admits(self, value: Any) -> bool:
        match self.kind:
            case ConstraintKind.ANY:
                return True
            case ConstraintKind.EXACT:
                return _canonical(value) == _canonical(self.value)
            case ConstraintKind.PATTERN:
                return isinstance(value, str) and matches(self.value, value)

    def as_dict(self) -> dict[str, Any]:
        if self.kind is ConstraintKind.ANY:
            return {"type": "any"}
        return {"type": str(self.kind), "value": self.value}

    @property
    def is_narrow(self) -> bool:
        """Return whether it restricts: a pattern of wildcards alone does not."""
        if self.kind is ConstraintKind.PATTERN:
            return bool(str(self.value).strip("*?"))
        return self.kind is ConstraintKind.EXACT


def matches(pattern: str, text: str) -> bool:
    """Return whether the whole text matches. Wildcards stand for printable characters only.

    Each character is looked at no more often than the pattern has characters.
    """
    at = in_pattern = 0
    star, resume = -1, 0
    while at < len(text):
        char = pattern[in_pattern] if in_pattern < len(pattern) else None
        if char == "*":
            star, resume = in_pattern, at
            in_pattern += 1
        elif char is not None and (char == text[at] or (char == "?" and _is_plain(text[at]))):
            in_pattern += 1
            at += 1
        elif star >= 0 and _is_plain(text[resume]):
            resume += 1
            at, in_pattern = resume, star + 1
        else:
            return False
    return not pattern[in_pattern:].strip("*")


def _is_plain(char: str) -> bool:
    return char >= _FIRST_PRINTABLE and char.isprintable()


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class ApprovalRule:
    id: UUID
    tool_name: str
    constraints: Mapping[str, Constraint]
    description: str
    created_at: datetime
    created_from: UUID | None = None
    expires_at: datetime | None = None
    max_uses: int | None = None
    use_count: int = 0
    active: bool = True
    trusted_only: bool = True  # it does not admit calls of sessions that have read untrusted text

    @classmethod
    def from_row(cls, row: asyncpg.Record) -> ApprovalRule:
        constraints = {
            name: Constraint.parse(name, given) for name, given in row["arg_constraints"].items()
        }
        fields = {name: row[name] for name in cls.__slots__ if name != "constraints"}
        return cls(constraints=constraints, **fields)

    @property
    def is_bounded(self) -> bool:
        return self.expires_at is not None or self.max_uses is not None

    def is_usable(self, now: datetime) -> bool:
        spent = self.max_uses is not None and self.use_count >= self.max_uses
        late = self.expires_at is not None and self.expires_at <= now
        return self.active and not spent and not late

    def admits(self, tool: str, arguments: Mapping[str, Any], *, trusted: bool) -> bool:
        if tool != self.tool_name or (self.trusted_only and not trusted):
            return False
        given = {name: value for name, value in arguments.items() if value is not None}
        named = all(name in self.constraints for name in given)
        return named and all(
            constraint.admits(arguments.get(name)) for name, constraint in self.constraints.items()
        )

    @property
    def rank(self) -> tuple[int, int, bool, datetime, UUID]:
        """Order among rules that admit a call: specific first, then bounded, then newest, then id."""
        kinds = [constraint.kind for constraint in self.constraints.values()]
        return (
            kinds.count(ConstraintKind.EXACT),
            kinds.count(ConstraintKind.PATTERN),
            self.is_bounded,
            self.created_at,
            self.id,
        )

    def as_dict(self) -> dict[str, Any]:
        shown = {name: getattr(self, name) for name in self.__slots__ if name != "constraints"}
        named = {name: one.as_dict() for name, one in self.constraints.items()}
        return {**shown, "arg_constraints": named}

    def check(self, risk: RiskTier) -> None:
        """Raise InvalidArguments for a rule that is too wide for the risk of its tool."""
        if not self.description.strip():
            raise InvalidArguments("the rule has no description", hint="say what it allows")
        if not risk.is_strict:
            return
        if not any(constraint.is_narrow for constraint in self.constraints.values()):
            raise InvalidArguments(
                f"a rule for {self.tool_name} ({risk} risk) needs an exact value or a pattern",
                hint="constrain at least one argument",
            )
        if not self.is_bounded:
            raise InvalidArguments(
                f"a rule for {self.tool_name} ({risk} risk) needs an end",
                hint="give expires_at or max_uses",
            )


def best_rule(
    rules: Iterable[ApprovalRule],
    tool: str,
    arguments: Mapping[str, Any],
    *,
    trusted: bool,
    now: datetime,
) -> ApprovalRule | None:
    """Return the first usable rule that admits the call, or None."""
    admitting = [
        rule
        for rule in rules
        if rule.is_usable(now) and rule.admits(tool, arguments, trusted=trusted)
    ]
    return max(admitting, key=lambda rule: rule.rank, default=None)


# -- rows ------------------------------------------------------------------------------------------


async def store_rule(connection: Connection, rule: ApprovalRule) -> None:
    await connection.execute(
        """
        INSERT INTO approval_rules (id, tool_name, arg_constraints, description, created_from,
                                    created_at, expires_at, max_uses, trusted_only)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
        """,
        rule.id,
        rule.tool_name,
        {name: constraint.as_dict() for name, constraint in rule.constraints.items()},
        rule.description,
        rule.created_from,
        rule.created_at,
        rule.expires_at,
        rule.max_uses,
        rule.trusted_only,
    )


async def rules_of_tool(connection: Connection, tool: str) -> list[ApprovalRule]:
    rows = await connection.fetch(
        "SELECT * FROM approval_rules WHERE tool_name = $1 AND active", tool
    )
    return [ApprovalRule.from_row(row) for row in rows]


async def list_rules(
    connection: Connection, tool: str | None, *, only_active: bool
) -> list[ApprovalRule]:
    rows = await connection.fetch(
        """
        SELECT * FROM approval_rules WHERE ($1::text IS NULL OR tool_name = $1) AND (active OR NOT $2)
        ORDER BY created_at DESC, id DESC
        """,
        tool,
        only_active,
    )
    return [ApprovalRule.from_row(row) for row in rows]


async def find_rule(connection: Connection, rule_id: UUID) -> ApprovalRule | None:
    row = await connection.fetchrow("SELECT * FROM approval_rules WHERE id = $1", rule_id)
    return ApprovalRule.from_row(row) if row else None


async def use_rule(connection: Connection, rule_id: UUID, now: datetime) -> bool:
    """Count one use, in the transaction of the call. Return False if the rule has none left."""
    used = await connection.fetchval(
        """
        UPDATE approval_rules SET use_count = use_count + 1
        WHERE id = $1 AND active AND (max_uses IS NULL OR use_count < max_uses)
          AND (expires_at IS NULL OR expires_at > $2)
        RETURNING true
        """,
        rule_id,
        now,
    )
    return bool(used)


async def revoke_rule(connection: Connection, rule_id: UUID) -> bool:
    """Return whether the rule was active."""
    revoked = await connection.fetchval(
        "UPDATE approval_rules SET active = false WHERE id = $1 AND active RETURNING true", rule_id
    )
    return bool(revoked)
