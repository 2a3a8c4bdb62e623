"""The append-only log of approvals, in the schema that belongs to no butler."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from butlers.db.database import Connection


class ApprovalEventKind(StrEnum):
    QUEUED = "action_queued"
    AUTO_APPROVED = "action_auto_approved"
    APPROVED = "action_approved"
    REJECTED = "action_rejected"
    EXPIRED = "action_expired"
    SUCCEEDED = "action_execution_succeeded"
    FAILED = "action_execution_failed"
    UNDONE = "action_undone"
    RULE_CREATED = "rule_created"
    RULE_REVOKED = "rule_revoked"


@dataclass(frozen=True, slots=True)
class ApprovalEvent:
    kind: ApprovalEventKind
    actor: str
    at: datetime
    action_id: UUID | None = None
    rule_id: UUID | None = None
    detail: dict[str, Any] = field(default_factory=dict)


async def log_event(connection: Connection, butler: str, event: ApprovalEvent) -> None:
    """Append an entry, in the transaction of what it tells."""
    await connection.execute(
        """
        INSERT INTO shared.approval_events (butler, event, action_id, rule_id, actor, detail, at)
        VALUES ($1, $2, $3, $4, $5, $6, $7)
        """,
        butler,
        event.kind,
        event.action_id,
        event.rule_id,
        event.actor,
        event.detail,
        event.at,
    )


async def events_of(connection: Connection, action_id: UUID) -> list[dict[str, Any]]:
    rows = await connection.fetch(
        """
        SELECT event, actor, rule_id, detail, at FROM shared.approval_events
        WHERE action_id = $1 ORDER BY id
        """,
        action_id,
    )
    return [dict(row) for row in rows]


async def take_turn(connection: Connection, now: datetime, pause_s: float) -> bool:
    """Take the fleet's next notification. Return False within the quiet interval."""
    taken = await connection.fetchval(
        "SELECT shared.take_question_turn($1, make_interval(secs => $2))", now, pause_s
    )
    return bool(taken)
