"""What somebody has been told already and need not hear again that day."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta
from typing import Any

from butlers.db.database import Connection
from butlers.queue.leased_queue import Lease

OVER_BUDGET = "over budget"
AWAY = "away"
RULE_LEADS_NOWHERE = "rule leads nowhere"


async def is_first(connection: Connection, what: str, whom: str, day: date) -> bool:
    """Whether nobody said so yet; from then on it counts as said, with the caller's transaction."""
    return whom in await first_ones(connection, what, [whom], day)


async def first_ones(
    connection: Connection, what: str, whom: Sequence[str], day: date
) -> frozenset[str]:
    """Those of them to whom nobody said so yet, as in ``is_first``."""
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


async def untold_behind(
    connection: Connection, lease: Lease, what: str, day: date, older_than: timedelta, limit: int
) -> list[Any]:
    """What the first of those carry that stand behind an item in its lane, have waited for so long, and whose
    request nobody told so yet, in order."""
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
