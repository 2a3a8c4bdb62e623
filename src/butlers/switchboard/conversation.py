"""The recent conversation: messages of the person, and deliveries of ours (table ``said``)."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from butlers.db.database import Connection
from butlers.domain.delivery import DeliveryRequest
from butlers.domain.message import Turn, joined

MAX_TURN = 2_000  # characters


async def record_delivery(connection: Connection, delivery: DeliveryRequest) -> None:
    """Store an outgoing message, so that the answer to it has a context."""
    if not delivery.message:
        return
    thread = delivery.thread or "from owner"  # without a thread there is only the owner
    await connection.execute(
        """
        INSERT INTO said (delivery_id, request_id, conversation, origin, message, answers)
        SELECT $1, $2, coalesce(
            (SELECT conversation FROM message_inbox WHERE request_id = $2), $3), $4, $5, $6
        ON CONFLICT (delivery_id) DO NOTHING
        """,
        delivery.delivery_id,
        delivery.request_id,
        joined(delivery.channel, delivery.target, thread),
        delivery.origin,
        delivery.message,
        [action.value for action in delivery.actions],
    )


async def last_answers(connection: Connection, conversation: str, since: datetime) -> list[str]:
    """Return the answers that the last message of ours in a conversation offered; none if it is older."""
    found: list[str] | None = await connection.fetchval(
        """
        SELECT CASE WHEN said_at >= $2 THEN answers END FROM said WHERE conversation = $1
        ORDER BY said_at DESC, delivery_id DESC LIMIT 1
        """,
        conversation,
        since,
    )
    return found or []


async def recent_turns(
    connection: Connection,
    conversation: str,
    before: UUID,
    since: datetime,
    until: datetime,
    limit: int,
) -> tuple[Turn, ...]:
    """Return the latest turns before a message, oldest first."""
    rows = await connection.fetch(
        """
        (SELECT 'person' AS speaker, left(text, $6) AS text, received_at AS at FROM message_inbox
         WHERE conversation = $1 AND request_id <> $2 AND state = 'accepted'
           AND received_at >= $3 AND received_at <= $4
         ORDER BY received_at DESC LIMIT $5)
        UNION ALL
        (SELECT 'assistant', left(message, $6), said_at FROM said
         WHERE conversation = $1 AND said_at >= $3 AND said_at <= $4 AND request_id IS DISTINCT FROM $2
         ORDER BY said_at DESC LIMIT $5)
        ORDER BY at DESC LIMIT $5
        """,
        conversation,
        before,
        since,
        until,
        limit,
        MAX_TURN,
    )
    return tuple(Turn(row["speaker"], row["text"], row["at"]) for row in reversed(rows))


async def owner_turns(
    connection: Connection, channel: str, endpoint: str, before: datetime | None, limit: int
) -> list[dict[str, Any]]:
    """Return the latest turns with the owner on one endpoint, oldest first."""
    rows = await connection.fetch(
        """
        (SELECT 'person' AS speaker, text, received_at AS at, request_id, NULL AS origin
         FROM message_inbox
         WHERE channel = $1 AND endpoint = $2 AND 'owner' = ANY(sender_roles)
           AND ($3::timestamptz IS NULL OR received_at < $3)
         ORDER BY received_at DESC LIMIT $4)
        UNION ALL
        (SELECT 'assistant', message, said_at, request_id, origin FROM said
         WHERE conversation = $5 AND ($3::timestamptz IS NULL OR said_at < $3)
         ORDER BY said_at DESC LIMIT $4)
        ORDER BY at DESC LIMIT $4
        """,
        channel,
        endpoint,
        before,
        limit,
        joined(channel, endpoint, "from owner"),
    )
    return [dict(row) for row in reversed(rows)]


async def texts_of_others(connection: Connection, request_id: UUID, reach: timedelta) -> str:
    """Return the context of a message that neither its sender nor the owner wrote."""
    rows = await connection.fetch(
        """
        SELECT other.text FROM message_inbox AS asked JOIN message_inbox AS other USING (conversation)
        WHERE asked.request_id = $1 AND other.state = 'accepted' AND other.sender <> asked.sender
          AND NOT 'owner' = ANY(other.sender_roles)
          AND other.received_at BETWEEN asked.received_at - $2::interval AND asked.received_at
        """,
        request_id,
        reach,
    )
    return "\n".join(row["text"] for row in rows)
