"""Notices that were sent, so that nobody is sent the same one twice in a day."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta
from typing import Any

from butlers.db.database import Connection
from butlers.queue.leased_queue import Lease

OVER_BUDGET = "over budget"
AWAY = "away"
NEEDS_OWNER = "needs the owner"
KEPT = "kept without a model"
RULE_TARGET_MISSING = "rule leads nowhere"


async def record_notice(connection: Connection, what: str, whom: str, day: date) -> bool:
    """Record a notice in the caller's transaction. Return False if it was already sent that day."""
    return whom in await record_notices(connection, what, [whom], day)


async def record_notices(
    connection: Connection, what: str, whom: Sequence[str], day: date
) -> frozenset[str]:
    """Record a notice to several recipients, and return those who had not been sent it that day."""
    await connection.execute("DELETE FROM told WHERE day < $1::date - 7", day)
    rows = await connection.fetch(
        """
        INSERT INTO told (what, whom, day) SELECT $1, one, $3 FROM unnest($2::text[]) AS one
        ON CONFLICT DO NOTHING RETURNING whom
        """,
        what,
        whom,
        day,
    )
    return frozenset(row["whom"] for row in rows)


async def unnotified_behind(
    connection: Connection, lease: Lease, what: str, day: date, older_than: timedelta, limit: int
) -> list[Any]:
    """Return payloads of ready items behind this one in its lane, oldest first.

    Only items older than ``older_than`` whose request has not been sent the notice that day.
    """
    rows = await connection.fetch(
        """
        SELECT item.payload FROM queue_items AS item JOIN queue_items AS head USING (queue, lane)
        WHERE head.id = $1 AND item.id > head.id AND item.state = 'ready'
          AND item.created_at < now() - $2::interval
          AND NOT EXISTS (SELECT FROM told
                          WHERE what = $3 AND whom = split_part(item.key, ':', 1) AND day = $4)
        ORDER BY item.id LIMIT $5
        """,
        lease.item_id,
        older_than,
        what,
        day,
        limit,
    )
    return [row["payload"] for row in rows]
