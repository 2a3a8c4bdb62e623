"""SQL of the deliveries and their attempts. Both are stored before a channel is called."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg

from butlers.db.database import Connection
from butlers.domain.delivery import (
    AttemptOutcome,
    DeliveryAction,
    DeliveryReceipt,
    DeliveryRequest,
    DeliveryState,
    Intent,
)
from butlers.domain.errors import NotFound
from butlers.domain.queues import DELIVERIES
from butlers.queue import leased_queue as queue
from butlers.wire.codec import decode, encode

ENDS = "delivery_ends"  # notified like a queue when the owner has to be told of something

_SHOWN = """
    delivery_id, request_id, origin, intent, channel, target, thread, subject, message, emoji,
    state, reason,
    accepted_at, not_before, expires_at, provider_message_id, delivered_at,
    (SELECT count(*) FROM delivery_attempts AS one WHERE one.delivery_id = deliveries.delivery_id)
        AS attempts
"""
# An attempt may have arrived: there was no answer, or the process ended before one came.
_IN_DOUBT = """EXISTS (
    SELECT FROM delivery_attempts AS one WHERE one.delivery_id = deliveries.delivery_id
      AND (one.outcome IN ('uncertain', 'died') OR one.ended_at IS NULL)
)"""


@dataclass(frozen=True, slots=True)
class DeliveryRecord:
    """The stored state of a delivery."""

    delivery: DeliveryRequest
    state: DeliveryState
    reason: str | None
    expires_at: datetime
    not_before: datetime | None
    tries: int  # attempts that count against it since it was accepted, approved or sent again
    in_doubt: bool  # whether an earlier attempt may have arrived

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
                subject=row["subject"],
                references=tuple(row["message_references"]),
                actions=tuple(decode(DeliveryAction, action) for action in row["actions"]),
            ),
            state=DeliveryState(row["state"]),
            reason=row["reason"],
            expires_at=row["expires_at"],
            not_before=row["not_before"],
            tries=row["tries"],
            in_doubt=row["in_doubt"],
        )


@dataclass(frozen=True, slots=True)
class UndeliveredNotice:
    """A delivery that did not arrive, as the owner is told of it."""

    delivery_id: UUID
    state: DeliveryState
    channel: str
    target: str
    reason: str | None


@dataclass(frozen=True, slots=True)
class LineAttempt:
    """An attempt over a line, as the limits count it."""

    line: str
    recipient: str
    started_at: datetime
    ended_at: datetime | None
    outcome: AttemptOutcome | None


@dataclass(frozen=True, slots=True)
class AttemptFailure:
    """The reason why an attempt did not deliver."""

    outcome: AttemptOutcome
    code: str
    error: str
    response: str | None = None
    pause_s: float | None = None  # requested by the platform


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
    """Store a delivery before anything is sent. Returns the id of the first one with the same key."""
    await connection.execute(
        """
        INSERT INTO deliveries (delivery_id, idempotency_key, request_id, origin, intent, channel,
                                target, thread, message, emoji, source_event, accepted_at,
                                expires_at, state, reason, told_at, subject, message_references,
                                actions)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)
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
        delivery.subject,
        list(delivery.references),
        [encode(action) for action in delivery.actions],
    )
    known = await find_by_key(connection, delivery.idempotency_key)
    assert known is not None
    return known


async def find_by_key(connection: Connection, idempotency_key: str) -> UUID | None:
    found: UUID | None = await connection.fetchval(
        "SELECT delivery_id FROM deliveries WHERE idempotency_key = $1", idempotency_key
    )
    return found


async def mark_told(connection: Connection, delivery_id: UUID, now: datetime) -> None:
    """Mark a delivery whose end the owner learns in another way."""
    await connection.execute(
        "UPDATE deliveries SET told_at = $2 WHERE delivery_id = $1", delivery_id, now
    )


async def enqueue(connection: Connection, delivery: DeliveryRequest, key: str) -> None:
    """Queue a stored delivery. Deliveries to one recipient keep their order."""
    await queue.enqueue(connection, DELIVERIES, key, encode(delivery), lane=delivery.lane)


async def lock_delivery(connection: Connection, delivery_id: UUID) -> DeliveryRecord:
    """Read a delivery for an update. Other transactions that change it wait for this one."""
    row = await connection.fetchrow(
        f"SELECT *, {_IN_DOUBT} AS in_doubt FROM deliveries WHERE delivery_id = $1 FOR UPDATE",
        delivery_id,
    )
    if row is None:
        raise NotFound(
            f"there is no delivery {delivery_id}", hint="`butlers deliveries list` shows them"
        )
    return DeliveryRecord.from_row(row)


async def set_state(
    connection: Connection,
    delivery_id: UUID,
    state: DeliveryState,
    reason: str | None,
    *,
    not_before: datetime | None = None,
    expires_at: datetime | None = None,
    tries: int | None = None,
) -> None:
    """Set the state of a delivery. None keeps ``expires_at`` and ``tries``, and clears ``not_before``."""
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
    """Accept a failed or parked delivery once more, with all its time and all its attempts.

    Its end is told to the owner like the first time.
    """
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
    """Return the number of deliveries per state, without the delivered ones."""
    rows = await connection.fetch(
        "SELECT state, count(*) AS items FROM deliveries WHERE state <> 'delivered' GROUP BY state"
    )
    return {row["state"]: row["items"] for row in rows}


async def end_orphans(connection: Connection) -> int:
    """End deliveries whose queue item is a dead letter, as when the process was killed each time.

    The state of one that was being sent, now or earlier, is ``unknown``.
    """
    rows = await connection.fetch(
        f"""
        UPDATE deliveries SET
            state = CASE WHEN state = 'sending' OR {_IN_DOUBT} THEN 'unknown' ELSE 'failed' END,
            reason = 'the Messenger was killed at every attempt'
        WHERE state IN ('accepted', 'deferred', 'sending')
          AND EXISTS (SELECT FROM queue_items WHERE queue = 'deliveries' AND state = 'dead'
                      AND payload ->> 'delivery_id' = deliveries.delivery_id::text)
        RETURNING 1
        """
    )
    return len(rows)


async def take_unreported(connection: Connection, now: datetime) -> list[UndeliveredNotice]:
    """Return undelivered deliveries that the owner has not been told of, and mark them as told."""
    rows = await connection.fetch(
        """
        UPDATE deliveries SET told_at = $1
        WHERE told_at IS NULL AND state IN ('unknown', 'expired', 'failed')
        RETURNING delivery_id, state, channel, target, reason
        """,
        now,
    )
    rows.sort(key=lambda row: row["delivery_id"])
    return [
        UndeliveredNotice(**{**dict(row), "state": DeliveryState(row["state"])}) for row in rows
    ]


async def origin_of(connection: Connection, channel: str, provider_message_id: str) -> str | None:
    """Return the butler that a delivered message came from."""
    found: str | None = await connection.fetchval(
        "SELECT origin FROM deliveries WHERE channel = $1 AND provider_message_id = $2"
        " ORDER BY delivered_at DESC LIMIT 1",
        channel,
        provider_message_id,
    )
    return found


# -- attempts ----------------------------------------------------------------------------------------


async def begin_attempt(
    connection: Connection, delivery: DeliveryRequest, line: str | None, now: datetime
) -> int:
    """Store a new attempt and the state ``sending``. Returns the number of the attempt.

    An attempt that an earlier process left open gets the outcome ``died``.
    """
    number: int = await connection.fetchval(
        """
        WITH sending AS (
            UPDATE deliveries SET state = 'sending', reason = NULL, not_before = NULL
            WHERE delivery_id = $1
        ), died AS (
            UPDATE delivery_attempts SET ended_at = $4, outcome = 'died',
                error = 'the process ended while it was being sent'
            WHERE delivery_id = $1 AND ended_at IS NULL
        )
        INSERT INTO delivery_attempts (delivery_id, number, line, recipient, started_at)
        SELECT $1, coalesce(max(number), 0) + 1, $2, $3, $4
        FROM delivery_attempts WHERE delivery_id = $1
        RETURNING number
        """,
        delivery.delivery_id,
        line,
        delivery.lane,
        now,
    )
    return number


async def end_delivered(connection: Connection, receipt: DeliveryReceipt, number: int) -> None:
    """Store the receipt. It is valid at any time, also for a delivery in the state ``unknown``."""
    await connection.execute(
        """
        WITH proven AS (
            UPDATE deliveries SET state = 'delivered', reason = NULL, not_before = NULL,
                provider_message_id = $3, delivered_at = $4
            WHERE delivery_id = $1 AND provider_message_id IS NULL
        )
        UPDATE delivery_attempts SET ended_at = $4, outcome = 'delivered'
        WHERE delivery_id = $1 AND number = $2
        """,
        receipt.delivery_id,
        number,
        receipt.provider_message_id,
        receipt.delivered_at,
    )


async def end_failed(
    connection: Connection,
    delivery_id: UUID,
    number: int | None,
    now: datetime,
    failure: AttemptFailure,
) -> None:
    """Store how an attempt ended; without a number, the open one."""
    await connection.execute(
        """
        UPDATE delivery_attempts SET ended_at = $3, outcome = $4, error_code = $5, error = $6,
            response = $7
        WHERE delivery_id = $1 AND (number = $2 OR ($2::int IS NULL AND ended_at IS NULL))
        """,
        delivery_id,
        number,
        now,
        failure.outcome,
        failure.code,
        failure.error,
        failure.response,
    )


async def attempts_of(connection: Connection, delivery_id: UUID) -> list[dict[str, Any]]:
    rows = await connection.fetch(
        """
        SELECT number, started_at, ended_at, outcome, error_code, error, response
        FROM delivery_attempts WHERE delivery_id = $1 ORDER BY number
        """,
        delivery_id,
    )
    return [dict(row) for row in rows]


async def recent_attempts(connection: Connection, since: datetime) -> list[LineAttempt]:
    """Return the attempts over counted lines since a time, the oldest first."""
    rows = await connection.fetch(
        """
        SELECT line, recipient, started_at, ended_at, outcome FROM delivery_attempts
        WHERE started_at >= $1 AND line IS NOT NULL ORDER BY started_at, delivery_id, number
        """,
        since,
    )
    return [
        LineAttempt(
            row["line"],
            row["recipient"],
            row["started_at"],
            row["ended_at"],
            AttemptOutcome(row["outcome"]) if row["outcome"] else None,
        )
        for row in rows
    ]
