"""Dead letters: queue items that were refused for good or used up their attempts. Kept, shown, replayed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from butlers.db.database import Connection
from butlers.queue import leased_queue as queue


@dataclass(frozen=True, slots=True)
class DeadLetter:
    item_id: UUID
    queue: str
    payload: Any
    error: str
    fence: int  # another each time it dies


async def take_untold(connection: Connection) -> list[DeadLetter]:
    """Those of whom nobody has been told, each handed out once per commit."""
    rows = await connection.fetch(
        """
        WITH untold AS (
            SELECT id FROM queue_items WHERE state = 'dead' AND NOT told
            ORDER BY id LIMIT 100 FOR UPDATE SKIP LOCKED
        )
        UPDATE queue_items AS item SET told = true FROM untold WHERE item.id = untold.id
        RETURNING item.id, item.queue, item.payload, item.error, item.fence
        """
    )
    return [
        DeadLetter(row["id"], row["queue"], row["payload"], row["error"] or "", row["fence"])
        for row in rows
    ]


async def list_dead(connection: Connection, limit: int, offset: int) -> list[dict[str, Any]]:
    rows = await connection.fetch(
        """
        SELECT id, queue, key, attempts, error, created_at, finished_at
        FROM queue_items WHERE state = 'dead' ORDER BY id DESC LIMIT $1 OFFSET $2
        """,
        limit,
        offset,
    )
    return [dict(row) for row in rows]


async def get_dead(connection: Connection, item_id: UUID) -> dict[str, Any] | None:
    row = await connection.fetchrow(
        "SELECT * FROM queue_items WHERE id = $1 AND state = 'dead'", item_id
    )
    return dict(row) if row else None


async def replay(connection: Connection, item_id: UUID) -> bool:
    """Put it back in its queue with all its attempts; False when it is not there."""
    name = await connection.fetchval(
        """
        UPDATE queue_items
        SET state = 'ready', attempts = 0, error = NULL, finished_at = NULL, told = false,
            run_after = now(), created_at = now(), waits_since = NULL
        WHERE id = $1 AND state = 'dead' RETURNING queue
        """,
        item_id,
    )
    if name is not None:
        await queue.notify(connection, name)
    return name is not None


async def discard(connection: Connection, item_id: UUID) -> bool:
    """Forget it for good."""
    found = await connection.fetchval(
        "DELETE FROM queue_items WHERE id = $1 AND state = 'dead' RETURNING true", item_id
    )
    return bool(found)


async def discard_deliveries(connection: Connection, delivery_id: UUID) -> int:
    """Forget the dead letters of one delivery, which goes on in another item."""
    rows = await connection.fetch(
        """
        DELETE FROM queue_items WHERE state = 'dead' AND queue = 'deliveries'
          AND payload ->> 'delivery_id' = $1 RETURNING 1
        """,
        str(delivery_id),
    )
    return len(rows)
