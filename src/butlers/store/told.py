"""What somebody has been told already and need not hear again that day."""

from __future__ import annotations

from datetime import date

from butlers.store.database import Connection

OVER_BUDGET = "over budget"


async def is_first(connection: Connection, what: str, whom: str, day: date) -> bool:
    """Whether nobody said so yet; from then on it counts as said, with the caller's transaction."""
    await connection.execute("DELETE FROM told WHERE day < $1::date - 7", day)
    first = await connection.fetchval(
        "INSERT INTO told (what, whom, day) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING RETURNING true",
        what,
        whom,
        day,
    )
    return bool(first)
