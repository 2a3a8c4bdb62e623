"""What was said lately in a conversation, by the person and by us."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

from butlers.db.database import Connection
from butlers.domain.delivery import DeliveryRequest
from butlers.domain.request import joined
from butlers.domain.route import Turn

LONGEST_TURN = 2_000  # characters; the rest of a long text is not what a reference is about


async def keep_said(connection: Connection, delivery: DeliveryRequest) -> None:
    """Note what goes out, so that what comes back next has something to refer to."""
    if not delivery.message:
        return
    whom = delivery.thread or "from owner"  # where there is no thread, there is only the owner
    await connection.execute(
        """
        INSERT INTO said (delivery_id, request_id, conversation, origin, message)
        SELECT $1, $2, coalesce(
            (SELECT conversation FROM message_inbox WHERE request_id = $2), $3), $4, $5
        ON CONFLICT (delivery_id) DO NOTHING
        """,
        delivery.delivery_id,
        delivery.request_id,
        joined(delivery.channel, delivery.target, whom),
        delivery.origin,
        delivery.message,
    )


async def recent_turns(
    connection: Connection,
    conversation: str,
    before: UUID,
    since: datetime,
    until: datetime,
    limit: int,
) -> tuple[Turn, ...]:
    """The last things said, oldest first, without the message that asks."""
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
        LONGEST_TURN,
    )
    return tuple(Turn(row["speaker"], row["text"], row["at"]) for row in reversed(rows))


async def words_of_others(connection: Connection, request_id: UUID, reach: timedelta) -> str:
    """What travelled along with a message and was written by somebody else than its sender or the owner."""
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
