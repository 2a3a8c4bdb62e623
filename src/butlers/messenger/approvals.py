"""Deliveries that need the owner's approval: the questions, the known recipients, and the decision.

Approving releases the delivery in the same transaction. Each question is decided once, or expires.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal
from uuid import UUID

import asyncpg

from butlers.db.database import Connection
from butlers.domain.delivery import DeliveryState
from butlers.domain.errors import NotFound, StateConflict
from butlers.messenger import deliveries
from butlers.messenger.deliveries import ENDS
from butlers.messenger.policy import DeliveryPolicy
from butlers.queue import leased_queue as queue

KnownBy = Literal["approved", "wrote"]


class ApprovalReason(StrEnum):
    NEW_RECIPIENT = "new_recipient"
    OUTSIDE_LINKS = "outside_links"


class Decision(StrEnum):
    APPROVED = "approved"
    REJECTED = "rejected"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class PendingAction:
    """A question to the owner about one delivery."""

    id: UUID
    kind: str
    summary: str
    payload: dict[str, Any]
    delivery_id: UUID
    created_at: datetime
    expires_at: datetime
    decided_at: datetime | None = None
    decision: Decision | None = None
    decided_by: str | None = None

    @classmethod
    def from_row(cls, row: asyncpg.Record) -> PendingAction:
        fields = {name: row[name] for name in cls.__slots__}
        decision = row["decision"]
        return cls(**{**fields, "decision": Decision(decision) if decision else None})


async def decide(
    connection: Connection,
    action_id: UUID,
    decision: Decision,
    by: str,
    policy: DeliveryPolicy,
    now: datetime,
) -> list[UUID]:
    """Decide a question and return the deliveries that it released. The same decision twice is one."""
    action = await _open_action(connection, action_id, decision, now)
    if action is None:
        return []
    await decide_action(connection, action.id, decision, by, now)
    if decision is Decision.REJECTED:
        await deliveries.set_state(
            connection, action.delivery_id, DeliveryState.DISCARDED, f"rejected by {by}"
        )
        return []
    await release(connection, action.delivery_id, policy, now)
    others = await _release_others(connection, action, by, policy, now)
    return [action.delivery_id, *others]


async def release(
    connection: Connection, delivery_id: UUID, policy: DeliveryPolicy, now: datetime
) -> None:
    """Queue a parked delivery. Its time to live starts now."""
    record = await deliveries.lock_delivery(connection, delivery_id)
    if record.state is not DeliveryState.PARKED:
        return
    until = policy.deadline(record.delivery.intent, now)
    await deliveries.accept_again(connection, delivery_id, "approved", until)
    await deliveries.enqueue(connection, record.delivery, str(delivery_id))


async def _open_action(
    connection: Connection, action_id: UUID, decision: Decision, now: datetime
) -> PendingAction | None:
    """Return the undecided question, or None if it has this decision already."""
    action = await lock_action(connection, action_id)
    if action is None:
        raise NotFound(
            f"there is no pending action {action_id}", hint="`butlers approvals list` shows them"
        )
    if action.decision is decision:
        return None
    if action.decision is not None or action.expires_at <= now:
        raise StateConflict(
            f"the pending action is {action.decision or Decision.EXPIRED} already",
            hint=f"`butlers deliveries resend {shlex.quote(str(action.delivery_id))}`"
            " sends the delivery anyway",
        )
    return action


async def _release_others(
    connection: Connection, action: PendingAction, by: str, policy: DeliveryPolicy, now: datetime
) -> list[UUID]:
    """Release the other deliveries that wait only for the approval of the same recipient."""
    if ApprovalReason.NEW_RECIPIENT not in action.payload["reasons"]:
        return []
    to = (await deliveries.lock_delivery(connection, action.delivery_id)).delivery
    await remember_recipient(connection, to.channel, to.target, "approved", now)
    others = await lock_open_for(connection, to.channel, to.target, ApprovalReason.NEW_RECIPIENT)
    for other in others:
        await decide_action(connection, other.id, Decision.APPROVED, by, now)
        await release(connection, other.delivery_id, policy, now)
    return [other.delivery_id for other in others]


# -- table pending_actions -----------------------------------------------------------------------------


async def store_action(connection: Connection, action: PendingAction) -> None:
    await connection.execute(
        """
        INSERT INTO pending_actions (id, kind, summary, payload, delivery_id, created_at, expires_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7)
        ON CONFLICT (delivery_id) DO NOTHING
        """,
        action.id,
        action.kind,
        action.summary,
        action.payload,
        action.delivery_id,
        action.created_at,
        action.expires_at,
    )
    await queue.notify(connection, ENDS)


async def lock_action(connection: Connection, action_id: UUID) -> PendingAction | None:
    row = await connection.fetchrow(
        "SELECT * FROM pending_actions WHERE id = $1 FOR UPDATE", action_id
    )
    return PendingAction.from_row(row) if row else None


async def lock_open_for(
    connection: Connection, channel: str, target: str, kind: ApprovalReason
) -> list[PendingAction]:
    """Return the open questions about this recipient that have no other reason.

    One that another transaction is deciding is skipped.
    """
    rows = await connection.fetch(
        """
        SELECT pending.* FROM pending_actions AS pending JOIN deliveries USING (delivery_id)
        WHERE decision IS NULL AND kind = $3 AND channel = $1 AND target = $2
        ORDER BY created_at, id FOR UPDATE OF pending SKIP LOCKED
        """,
        channel,
        target,
        kind,
    )
    return [PendingAction.from_row(row) for row in rows]


async def decide_action(
    connection: Connection, action_id: UUID, decision: Decision, by: str, now: datetime
) -> None:
    await connection.execute(
        """
        UPDATE pending_actions SET decision = $2, decided_by = $3, decided_at = $4
        WHERE id = $1 AND decision IS NULL
        """,
        action_id,
        decision,
        by,
        now,
    )


async def list_actions(
    connection: Connection, *, only_open: bool, limit: int
) -> list[PendingAction]:
    rows = await connection.fetch(
        """
        SELECT * FROM pending_actions WHERE decision IS NULL OR NOT $1
        ORDER BY created_at DESC, id DESC LIMIT $2
        """,
        only_open,
        limit,
    )
    return [PendingAction.from_row(row) for row in rows]


async def expire_actions(connection: Connection, now: datetime) -> int:
    """Expire the questions that were not decided in time, and their deliveries."""
    rows = await connection.fetch(
        """
        WITH late AS (
            UPDATE pending_actions SET decision = 'expired', decided_at = $1
            WHERE decision IS NULL AND expires_at <= $1 RETURNING delivery_id
        )
        UPDATE deliveries SET state = 'expired', reason = 'not decided in time'
        FROM late WHERE deliveries.delivery_id = late.delivery_id AND state = 'parked' RETURNING 1
        """,
        now,
    )
    return len(rows)


async def take_unsent_questions(connection: Connection, now: datetime) -> list[PendingAction]:
    """Return the questions that the owner has not been asked yet, and mark them as asked."""
    rows = await connection.fetch(
        """
        UPDATE pending_actions SET told_at = $1 WHERE told_at IS NULL AND decision IS NULL
        RETURNING *
        """,
        now,
    )
    return [PendingAction.from_row(row) for row in sorted(rows, key=lambda row: row["id"])]


# -- table recipients ----------------------------------------------------------------------------------


async def is_known_recipient(connection: Connection, channel: str, target: str) -> bool:
    """Return whether the owner approved the recipient, or the recipient wrote first."""
    found = await connection.fetchval(
        "SELECT true FROM recipients WHERE channel = $1 AND target = $2", channel, target
    )
    return bool(found)


async def remember_recipient(
    connection: Connection, channel: str, target: str, known_by: KnownBy, now: datetime
) -> None:
    await connection.execute(
        """
        INSERT INTO recipients (channel, target, known_by, since) VALUES ($1, $2, $3, $4)
        ON CONFLICT (channel, target) DO NOTHING
        """,
        channel,
        target,
        known_by,
        now,
    )
