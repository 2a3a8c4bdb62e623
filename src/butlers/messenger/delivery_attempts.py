"""Each attempt to send a delivery: written down before the channel is asked, its outcome after."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from butlers.db.database import Connection
from butlers.domain.delivery import AttemptOutcome, DeliveryReceipt, DeliveryRequest
from butlers.domain.message import joined


@dataclass(frozen=True, slots=True)
class Attempt:
    """What an attempt tells about the line that it used."""

    line: str
    recipient: str
    started_at: datetime
    ended_at: datetime | None
    outcome: AttemptOutcome | None


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an attempt did not deliver."""

    outcome: AttemptOutcome
    code: str
    error: str
    response: str | None = None
    pause_s: float | None = None  # what the platform asked for


def recipient_of(delivery: DeliveryRequest) -> str:
    return joined(delivery.channel, delivery.target)


async def begin_attempt(
    connection: Connection, delivery: DeliveryRequest, line: str | None, now: datetime
) -> int:
    """Number and note an attempt, and that the delivery is being sent. One that an earlier process
    left open has died."""
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
        recipient_of(delivery),
        now,
    )
    return number


async def end_delivered(connection: Connection, receipt: DeliveryReceipt, number: int) -> None:
    """Keep the proof. It counts whenever it comes, also for a delivery that was given up as unknown."""
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
    connection: Connection, delivery_id: UUID, number: int | None, now: datetime, failure: Failure
) -> None:
    """Note how it ended; without a number, the one that is open."""
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


async def recent_attempts(connection: Connection, since: datetime) -> list[Attempt]:
    """What was tried since then on lines that are counted, the oldest first."""
    rows = await connection.fetch(
        """
        SELECT line, recipient, started_at, ended_at, outcome FROM delivery_attempts
        WHERE started_at >= $1 AND line IS NOT NULL ORDER BY started_at, delivery_id, number
        """,
        since,
    )
    return [
        Attempt(
            row["line"],
            row["recipient"],
            row["started_at"],
            row["ended_at"],
            AttemptOutcome(row["outcome"]) if row["outcome"] else None,
        )
        for row in rows
    ]
