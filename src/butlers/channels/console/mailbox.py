"""The console's mailbox: replies wait there until a console has shown them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from butlers.db.database import Connection
from butlers.domain.delivery import DeliveryRequest
from butlers.queue import leased_queue as queue

MAILBOX = "console_mailbox"


@dataclass(frozen=True, slots=True)
class Mail:
    """One reply in the console's mailbox."""

    delivery_id: UUID
    request_id: UUID | None
    origin: str
    message: str
    posted_at: datetime


async def post_mail(connection: Connection, delivery: DeliveryRequest) -> int:
    """Put a reply in the console's mailbox, once; its position is the platform's message id."""
    await connection.execute(
        """
        INSERT INTO console_mailbox (delivery_id, target, request_id, origin, message)
        VALUES ($1, $2, $3, $4, $5)
        ON CONFLICT (delivery_id) DO NOTHING
        """,
        delivery.delivery_id,
        delivery.target,
        delivery.request_id,
        delivery.origin,
        delivery.emoji or delivery.message,
    )
    await queue.notify(connection, MAILBOX)
    position: int = await connection.fetchval(
        "SELECT position FROM console_mailbox WHERE delivery_id = $1", delivery.delivery_id
    )
    return position


async def waiting_mail(
    connection: Connection, target: str, request_id: UUID | None, limit: int = 50
) -> list[Mail]:
    rows = await connection.fetch(
        """
        SELECT delivery_id, request_id, origin, message, posted_at FROM console_mailbox
        WHERE target = $1 AND shown_at IS NULL AND ($2::uuid IS NULL OR request_id = $2)
        ORDER BY position LIMIT $3
        """,
        target,
        request_id,
        limit,
    )
    return [Mail(**dict(row)) for row in rows]


async def mark_shown(connection: Connection, delivery_ids: Sequence[UUID]) -> int:
    rows = await connection.fetch(
        """
        UPDATE console_mailbox SET shown_at = now()
        WHERE delivery_id = ANY($1::uuid[]) AND shown_at IS NULL RETURNING 1
        """,
        list(delivery_ids),
    )
    return len(rows)
