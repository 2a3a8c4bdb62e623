"""The Messenger's books: every delivery before it is sent, its receipt after, and the console's mailbox."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from butlers.domain.delivery import DeliveryReceipt, DeliveryRequest
from butlers.store import queue
from butlers.store.database import Connection

MAILBOX = "console_mailbox"


@dataclass(frozen=True, slots=True)
class Mail:
    """One reply in the console's mailbox."""

    delivery_id: UUID
    request_id: UUID | None
    origin: str
    message: str
    posted_at: datetime


async def store_delivery(connection: Connection, delivery: DeliveryRequest) -> UUID:
    """Write a delivery down before anything is sent; the id under which it is known."""
    await connection.execute(
        """
        INSERT INTO deliveries (delivery_id, idempotency_key, request_id, origin, intent, channel,
                                target, thread, message)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
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
    )
    known: UUID = await connection.fetchval(
        "SELECT delivery_id FROM deliveries WHERE idempotency_key = $1", delivery.idempotency_key
    )
    return known


async def store_receipt(connection: Connection, receipt: DeliveryReceipt) -> None:
    await connection.execute(
        """
        UPDATE deliveries SET provider_message_id = $2, delivered_at = $3
        WHERE delivery_id = $1 AND provider_message_id IS NULL
        """,
        receipt.delivery_id,
        receipt.provider_message_id,
        receipt.delivered_at,
    )


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
        delivery.message,
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
