"""Pending actions: calls that wait for the owner, and what became of them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg

from butlers.db.database import Connection
from butlers.domain.approval import ActionStatus, RiskTier
from butlers.domain.errors import NotFound, StateConflict
from butlers.domain.message import RequestContext
from butlers.domain.provenance import Trust
from butlers.queue import leased_queue as queue
from butlers.wire.codec import decode, encode

CHANGED = "approvals_changed"  # the topic that wakes the notices
LIST_HINT = "`butlers approvals list` shows them"


class AlreadyDecided(StateConflict):
    """The pending action is decided already."""

    code = "already_decided"
    default_hint = "`butlers approvals show ID` shows its result and its log"


class ActionExpired(StateConflict):
    """The pending action was not decided in time."""

    code = "action_expired"
    default_hint = "ask the butler again"


@dataclass(frozen=True, slots=True)
class PendingAction:
    id: UUID
    tool_name: str
    tool_args: dict[str, Any]
    args_hash: str
    agent_summary: str  # made by the daemon, from the arguments
    action: str
    why: str
    risk_tier: RiskTier
    reversible: bool
    group_key: str
    decides_group: bool
    trust: Trust
    requested_at: datetime
    expires_at: datetime
    session_id: UUID | None = None
    request_id: UUID | None = None
    sender: str | None = None
    request: RequestContext | None = None
    status: ActionStatus = ActionStatus.PENDING
    asked_at: datetime | None = None
    decided_by: str | None = None
    decided_at: datetime | None = None
    started_at: datetime | None = None
    execution_result: dict[str, Any] | None = None
    approval_rule_id: UUID | None = None
    told_at: datetime | None = None
    undone_at: datetime | None = None

    @classmethod
    def from_row(cls, row: asyncpg.Record) -> PendingAction:
        fields = {name: row[name] for name in cls.__slots__}
        return cls(
            **{
                **fields,
                "risk_tier": RiskTier(row["risk_tier"]),
                "status": ActionStatus(row["status"]),
                "trust": Trust(row["trust"]),
                "request": decode(RequestContext, row["request"]) if row["request"] else None,
            }
        )

    @property
    def code(self) -> str:
        """Short id for an answer in a chat."""
        return self.id.hex[-6:]

    @property
    def is_trusted(self) -> bool:
        return self.trust is Trust.OWNER

    def shown(self, now: datetime) -> dict[str, Any]:
        late = self.status is ActionStatus.PENDING and self.expires_at <= now
        hidden = ("request", "args_hash", "group_key", "decides_group", "asked_at", "told_at")
        fields = {name: getattr(self, name) for name in self.__slots__ if name not in hidden}
        return {
            **fields,
            "code": self.code,
            "status": ActionStatus.EXPIRED if late else self.status,
        }


async def store_action(connection: Connection, action: PendingAction) -> None:
    await connection.execute(
        """
        INSERT INTO pending_actions (id, tool_name, tool_args, args_hash, agent_summary, action, why,
            risk_tier, reversible, group_key, decides_group, trust, requested_at, expires_at,
            session_id, request_id, sender, request, status, decided_by, decided_at,
            execution_result, approval_rule_id, asked_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19,
                $20, $21, $22, $23, $24)
        """,
        action.id,
        action.tool_name,
        action.tool_args,
        action.args_hash,
        action.agent_summary,
        action.action,
        action.why,
        action.risk_tier,
        action.reversible,
        action.group_key,
        action.decides_group,
        action.trust,
        action.requested_at,
        action.expires_at,
        action.session_id,
        action.request_id,
        action.sender,
        encode(action.request) if action.request else None,
        action.status,
        action.decided_by,
        action.decided_at,
        action.execution_result,
        action.approval_rule_id,
        action.asked_at,
    )
    await queue.notify(connection, CHANGED)


async def find_equal(connection: Connection, action: PendingAction) -> PendingAction | None:
    """Return the open question about the same call of the same request or session."""
    row = await connection.fetchrow(
        """
        SELECT * FROM pending_actions
        WHERE status = 'pending' AND tool_name = $1 AND args_hash = $2 AND expires_at > $3
          AND coalesce(request_id, session_id) = coalesce($4::uuid, $5::uuid)
        """,
        action.tool_name,
        action.args_hash,
        action.requested_at,
        action.request_id,
        action.session_id,
    )
    return PendingAction.from_row(row) if row else None


async def count_open(connection: Connection, session_id: UUID | None = None) -> int:
    counted: int = await connection.fetchval(
        """
        SELECT count(*) FROM pending_actions
        WHERE status = 'pending' AND ($1::uuid IS NULL OR session_id = $1)
        """,
        session_id,
    )
    return counted


async def lock_action(connection: Connection, action_id: UUID) -> PendingAction:
    row = await connection.fetchrow(
        "SELECT * FROM pending_actions WHERE id = $1 FOR UPDATE", action_id
    )
    if row is None:
        raise NotFound(f"there is no pending action {action_id}", hint=LIST_HINT)
    return PendingAction.from_row(row)


async def find_action(connection: Connection, action_id: UUID) -> PendingAction:
    row = await connection.fetchrow("SELECT * FROM pending_actions WHERE id = $1", action_id)
    if row is None:
        raise NotFound(f"there is no pending action {action_id}", hint=LIST_HINT)
    return PendingAction.from_row(row)


async def lock_group(connection: Connection, action: PendingAction) -> list[PendingAction]:
    """Lock the other open questions of a group. One that another transaction is deciding is skipped."""
    rows = await connection.fetch(
        """
        SELECT * FROM pending_actions
        WHERE status = 'pending' AND decides_group AND group_key = $1 AND id <> $2 AND expires_at > $3
        ORDER BY requested_at, id FOR UPDATE SKIP LOCKED
        """,
        action.group_key,
        action.id,
        action.decided_at,
    )
    return [PendingAction.from_row(row) for row in rows]


async def list_actions(
    connection: Connection, status: ActionStatus | None, limit: int
) -> list[PendingAction]:
    rows = await connection.fetch(
        """
        SELECT * FROM pending_actions WHERE $1::text IS NULL OR status = $1
        ORDER BY requested_at DESC, id DESC LIMIT $2
        """,
        status,
        limit,
    )
    return [PendingAction.from_row(row) for row in rows]


async def actions_of_tool(
    connection: Connection, tool: str, since: datetime
) -> list[PendingAction]:
    rows = await connection.fetch(
        """
        SELECT * FROM pending_actions WHERE tool_name = $1 AND requested_at >= $2
        ORDER BY requested_at DESC, id DESC LIMIT 1000
        """,
        tool,
        since,
    )
    return [PendingAction.from_row(row) for row in rows]


async def decided_since(connection: Connection, since: datetime) -> list[PendingAction]:
    rows = await connection.fetch(
        """
        SELECT * FROM pending_actions WHERE decided_at >= $1 ORDER BY decided_at DESC LIMIT 1000
        """,
        since,
    )
    return [PendingAction.from_row(row) for row in rows]


async def find_by_code(connection: Connection, code: str) -> list[PendingAction]:
    rows = await connection.fetch(
        """
        SELECT * FROM pending_actions WHERE right(replace(id::text, '-', ''), length($1)) = $1
        ORDER BY status = 'pending' DESC, requested_at DESC LIMIT 2
        """,
        code,
    )
    found = [PendingAction.from_row(row) for row in rows]
    waiting = [one for one in found if one.status is ActionStatus.PENDING]
    return waiting or found


async def decide_action(
    connection: Connection,
    action_id: UUID,
    status: ActionStatus,
    by: str,
    now: datetime,
    rule_id: UUID | None = None,
) -> PendingAction | None:
    """Decide an open question. Return None if another transaction decided it, or it has expired."""
    row = await connection.fetchrow(
        """
        UPDATE pending_actions SET status = $2, decided_by = $3, decided_at = $4,
            approval_rule_id = coalesce($5, approval_rule_id)
        WHERE id = $1 AND status = 'pending' AND expires_at > $4 RETURNING *
        """,
        action_id,
        status,
        by,
        now,
        rule_id,
    )
    await queue.notify(connection, CHANGED)
    return PendingAction.from_row(row) if row else None


async def begin_execution(connection: Connection, action_id: UUID, now: datetime) -> bool:
    """Mark an approved call as started. Return False if it was started before."""
    started = await connection.fetchval(
        """
        UPDATE pending_actions SET started_at = $2
        WHERE id = $1 AND status = 'approved' AND started_at IS NULL RETURNING true
        """,
        action_id,
        now,
    )
    return bool(started)


async def end_execution(connection: Connection, action_id: UUID, result: dict[str, Any]) -> bool:
    """Store the result of an approved call, once."""
    ended = await connection.fetchval(
        """
        UPDATE pending_actions SET status = 'executed', execution_result = $2
        WHERE id = $1 AND status = 'approved' RETURNING true
        """,
        action_id,
        result,
    )
    return bool(ended)


async def mark_undone(connection: Connection, action_id: UUID, now: datetime) -> None:
    await connection.execute(
        "UPDATE pending_actions SET undone_at = $2 WHERE id = $1", action_id, now
    )


async def expire_actions(connection: Connection, now: datetime) -> list[PendingAction]:
    """Expire the questions that were not decided in time, and return them."""
    rows = await connection.fetch(
        """
        UPDATE pending_actions SET status = 'expired', decided_at = $1
        WHERE id IN (SELECT id FROM pending_actions WHERE status = 'pending' AND expires_at <= $1
                     ORDER BY expires_at LIMIT 500 FOR UPDATE SKIP LOCKED)
        RETURNING *
        """,
        now,
    )
    return [PendingAction.from_row(row) for row in rows]


async def lock_unasked(connection: Connection, now: datetime) -> list[PendingAction]:
    """Return the open questions that the owner has not been asked, and expiries not yet told."""
    rows = await connection.fetch(
        """
        SELECT * FROM pending_actions
        WHERE (status = 'pending' AND asked_at IS NULL AND expires_at > $1)
           OR (status = 'expired' AND told_at IS NULL)
        ORDER BY requested_at, id FOR UPDATE SKIP LOCKED
        """,
        now,
    )
    return [PendingAction.from_row(row) for row in rows]


async def mark_asked(connection: Connection, ids: list[UUID], now: datetime) -> None:
    await connection.execute(
        """
        UPDATE pending_actions SET asked_at = coalesce(asked_at, $2),
            told_at = CASE WHEN status = 'expired' THEN $2 END
        WHERE id = ANY($1::uuid[])
        """,
        ids,
        now,
    )
