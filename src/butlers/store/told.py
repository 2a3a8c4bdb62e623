"""What somebody has been told already and need not hear again that day."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from butlers.store.database import Connection

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
