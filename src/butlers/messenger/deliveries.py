"""The Messenger's books: every delivery before it is sent, the states of its life, its receipt at the end."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg

from butlers.db.database import Connection
from butlers.domain.delivery import DeliveryRequest, DeliveryState, Intent
from butlers.domain.errors import NotFound
from butlers.queue import leased_queue as queue

ENDS = "delivery_ends"  # announced as if it were a queue, to whoever tells the owner

_SHOWN = """
    delivery_id, request_id, origin, intent, channel, target, thread, message, emoji, state, reason,
    accepted_at, not_before, expires_at, provider_message_id, delivered_at,
    (SELECT count(*) FROM delivery_attempts AS one WHERE one.delivery_id = deliveries.delivery_id)
        AS attempts
"""
# Nobody knows what came of it: the answer was none, or the process ended before there was one.
_IN_DOUBT = """EXISTS (
    SELECT FROM delivery_attempts AS one WHERE one.delivery_id = deliveries.delivery_id
      AND (one.outcome IN ('uncertain', 'died') OR one.ended_at IS NULL)
)"""


@dataclass(frozen=True, slots=True)
class DeliveryRecord:
    """Where a delivery stands."""

    delivery: DeliveryRequest
    state: DeliveryState
    reason: str | None
    expires_at: datetime
    not_before: datetime | None
    tries: int  # attempts that count against it since it was accepted, approved or sent again
    in_doubt: bool  # whether an attempt before now may have reached its channel

    @classmethod
    def from_row(cls, row: asyncpg.Record) -> DeliveryRecord:
        return cls(
            delivery=DeliveryRequest(
                delivery_id=row["delivery_id"],
                origin=row["origin"],
                intent=Intent(row["intent"]),
                channel=row["channel"],
                target=row["target"],
                message=row["message"],
                request_id=row["request_id"],
                thread=row["thread"],
                emoji=row["emoji"],
                source_event=row["source_event"],
            ),
            state=DeliveryState(row["state"]),
            reason=row["reason"],
            expires_at=row["expires_at"],
            not_before=row["not_before"],
            tries=row["tries"],
            in_doubt=row["in_doubt"],
        )


@dataclass(frozen=True, slots=True)
class Ending:
    """What the owner is told of a delivery that did not arrive."""

    delivery_id: UUID
    state: DeliveryState
    channel: str
    target: str
    reason: str | None


async def store_delivery(
    connection: Connection,
    delivery: DeliveryRequest,
    *,
    accepted_at: datetime,
    expires_at: datetime,
    state: DeliveryState = DeliveryState.ACCEPTED,
    reason: str | None = None,
    told_at: datetime | None = None,
) -> UUID:
    """Write a delivery down before anything is sent; the id under which it is known."""
    await connection.execute(
        """
        INSERT INTO deliveries (delivery_id, idempotency_key, request_id, origin, intent, channel,
                                target, thread, message, emoji, source_event, accepted_at,
                                expires_at, state, reason, told_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)
        ON CONFLICT (idempotency_key) DO NOTHING
        """,
        delivery.delivery_id,
        delivery.idempotency_key,
        delivery.request_id,
        delivery.origin,
        delivery.intent,
        delivery.channel,
        delivery.target,
        delivery.thread,
        delivery.message,
        delivery.emoji,
        delivery.source_event,
        accepted_at,
        expires_at,
        state,
        reason,
        told_at,
    )
    known: UUID = await connection.fetchval(
        "SELECT delivery_id FROM deliveries WHERE idempotency_key = $1", delivery.idempotency_key
    )
    return known


async def lock_delivery(connection: Connection, delivery_id: UUID) -> DeliveryRecord:
    """Read it for a change: whoever else wants to change it waits until this transaction ends."""
    row = await connection.fetchrow(
        f"SELECT *, {_IN_DOUBT} AS in_doubt FROM deliveries WHERE delivery_id = $1 FOR UPDATE",
        delivery_id,
    )
    if row is None:
        raise NotFound(
            f"there is no delivery {delivery_id}", hint="`butlers deliveries list` shows them"
        )
    return DeliveryRecord.from_row(row)


async def move(
    connection: Connection,
    delivery_id: UUID,
    state: DeliveryState,
    reason: str | None,
    *,
    not_before: datetime | None = None,
    expires_at: datetime | None = None,
    tries: int | None = None,
) -> None:
    """Bring a delivery into another state; what is None keeps its value, but ``not_before``."""
    await connection.execute(
        """
        UPDATE deliveries SET state = $2, reason = $3, not_before = $4,
            expires_at = coalesce($5, expires_at), tries = coalesce($6, tries)
        WHERE delivery_id = $1
        """,
        delivery_id,
        state,
        reason,
        not_before,
        expires_at,
        tries,
    )
    if state in (DeliveryState.UNKNOWN, DeliveryState.EXPIRED, DeliveryState.FAILED):
        await queue.notify(connection, ENDS)


async def accept_again(
    connection: Connection, delivery_id: UUID, reason: str, expires_at: datetime
) -> None:
    """It was given up, or kept back, and is wanted after all: with all its time and all its attempts.
    What becomes of it then is told like the first time."""
    await connection.execute(
        """
        UPDATE deliveries SET state = 'accepted', reason = $2, expires_at = $3, not_before = NULL,
            tries = 0, told_at = NULL
        WHERE delivery_id = $1
        """,
        delivery_id,
        reason,
        expires_at,
    )


async def list_deliveries(
    connection: Connection, state: DeliveryState | None, limit: int, offset: int
) -> list[dict[str, Any]]:
    rows = await connection.fetch(
        f"""
        SELECT {_SHOWN} FROM deliveries WHERE $1::text IS NULL OR state = $1
        ORDER BY accepted_at DESC, delivery_id DESC LIMIT $2 OFFSET $3
        """,
        state,
        limit,
        offset,
    )
    return [dict(row) for row in rows]


async def get_delivery(connection: Connection, delivery_id: UUID) -> dict[str, Any] | None:
    row = await connection.fetchrow(
        f"SELECT {_SHOWN} FROM deliveries WHERE delivery_id = $1", delivery_id
    )
    return dict(row) if row else None


async def count_states(connection: Connection) -> dict[str, int]:
    """How many there are in each state that is not the usual end."""
    rows = await connection.fetch(
        "SELECT state, count(*) AS items FROM deliveries WHERE state <> 'delivered' GROUP BY state"
    )
    return {row["state"]: row["items"] for row in rows}


async def end_orphans(connection: Connection) -> int:
    """Deliveries whose queue item died without them, as when the process was killed each time.

    One that was being sent, now or before, may have gone out.
    """
    rows = await connection.fetch(
        f"""
        UPDATE deliveries SET
            state = CASE WHEN state = 'sending' OR {_IN_DOUBT} THEN 'unknown' ELSE 'failed' END,
            reason = 'the process ended each time that it was its turn'
        WHERE state IN ('accepted', 'deferred', 'sending')
          AND EXISTS (SELECT FROM queue_items WHERE queue = 'deliveries' AND state = 'dead'
                      AND payload ->> 'delivery_id' = deliveries.delivery_id::text)
        RETURNING 1
        """
    )
    return len(rows)


async def take_untold(connection: Connection, now: datetime) -> list[Ending]:
    """Those that did not arrive and of which the owner has not been told, once per commit."""
    rows = await connection.fetch(
        """
        UPDATE deliveries SET told_at = $1
        WHERE told_at IS NULL AND state IN ('unknown', 'expired', 'failed')
        RETURNING delivery_id, state, channel, target, reason
        """,
        now,
    )
    rows.sort(key=lambda row: row["delivery_id"])
    return [Ending(**{**dict(row), "state": DeliveryState(row["state"])}) for row in rows]


async def origin_of(connection: Connection, channel: str, provider_message_id: str) -> str | None:
    found: str | None = await connection.fetchval(
        "SELECT origin FROM deliveries WHERE channel = $1 AND provider_message_id = $2"
        " ORDER BY delivered_at DESC LIMIT 1",
        channel,
        provider_message_id,
    )
    return found
