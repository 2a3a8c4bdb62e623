"""The console's mailbox: a sent delivery waits there until a console has shown it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from butlers.db.database import Connection, Database
from butlers.domain.clock import Clock
from butlers.domain.delivery import DeliveryReceipt, DeliveryRequest
from butlers.domain.message import CONSOLE
from butlers.queue import leased_queue as queue

MAILBOX = "console_mailbox"
RETENTION = {MAILBOX: "shown_at < $1 AND coalesce(request_id::text, '') <> ALL($2)"}


@dataclass(frozen=True, slots=True)
class Mail:
    """One delivery in the mailbox."""

    delivery_id: UUID
    request_id: UUID | None
    origin: str
    message: str
    posted_at: datetime


class ConsoleSender:
    name = CONSOLE

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    def idempotent(self, target: str) -> bool:
        return True  # the mailbox has one row per delivery id

    def line(self, target: str) -> str | None:
        return None

    async def send(self, delivery: DeliveryRequest) -> DeliveryReceipt:
        async with self._database.transaction() as connection:
            position = await post_mail(connection, delivery)
        return DeliveryReceipt(delivery.delivery_id, self.name, str(position), self._clock.now())


async def post_mail(connection: Connection, delivery: DeliveryRequest) -> int:
    """Put a delivery in the mailbox, once. Returns its position, which serves as the message id."""
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
        delivery.text,
    )
    await queue.notify(connection, MAILBOX)
    position: int = await connection.fetchval(
        "SELECT position FROM console_mailbox WHERE delivery_id = $1", delivery.delivery_id
    )
    return position


async def waiting_mail(
    connection: Connection, target: str, request_id: UUID | None, limit: int = 50
) -> list[Mail]:
    """Return the mail of a target that no console has shown, of one request or of all."""
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
