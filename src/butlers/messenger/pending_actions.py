"""What waits for the owner's word: each is decided once, or expires."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

import asyncpg

from butlers.db.database import Connection
from butlers.messenger.deliveries import ENDS
from butlers.queue import leased_queue as queue


class Kind(StrEnum):
    NEW_RECIPIENT = "new_recipient"
    OUTSIDE_LINKS = "outside_links"


class Decision(StrEnum):
    APPROVED = "approved"
    REJECTED = "rejected"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class PendingAction:
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
    connection: Connection, channel: str, target: str, kind: Kind
) -> list[PendingAction]:
    """The others that wait for nothing but the owner's word on this one recipient.

    One that is being decided at the same time has a word of its own.
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
    """Those that nobody decided in time, and the deliveries that they held."""
    rows = await connection.fetch(
        """
        WITH late AS (
            UPDATE pending_actions SET decision = 'expired', decided_at = $1
            WHERE decision IS NULL AND expires_at <= $1 RETURNING delivery_id
        )
        UPDATE deliveries SET state = 'expired', reason = 'nobody decided in time'
        FROM late WHERE deliveries.delivery_id = late.delivery_id AND state = 'parked' RETURNING 1
        """,
        now,
    )
    return len(rows)


async def take_unasked(connection: Connection, now: datetime) -> list[PendingAction]:
    """Those that the owner has not been asked about, once per commit."""
    rows = await connection.fetch(
        """
        UPDATE pending_actions SET told_at = $1 WHERE told_at IS NULL AND decision IS NULL
        RETURNING *
        """,
        now,
    )
    return [PendingAction.from_row(row) for row in sorted(rows, key=lambda row: row["id"])]
