"""Whether the owner has paused the fleet, and until when."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from butlers.db.database import Connection
from butlers.domain.errors import Postponed
from butlers.domain.strict import STRICT

# Where a pause has no end; ending it, or giving it one, wakes what waits.
LOOK_AGAIN = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Pause:
    since: datetime
    until: datetime | None = None  # None: until it is ended
    __pydantic_config__ = STRICT


async def await_turn(connection: Connection, *, alone: bool = True) -> None:
    """Until the transaction ends: a pause neither begins nor ends while somebody goes by what it is. Not
    ``alone``: only reading, beside others that read."""
    lock = "pg_advisory_xact_lock" if alone else "pg_advisory_xact_lock_shared"
    await connection.execute(f"SELECT {lock}(hashtextextended('pause ' || current_schema(), 0))")


async def begin_pause(connection: Connection, until: datetime | None) -> Pause:
    await await_turn(connection)
    since: datetime = await connection.fetchval(
        "INSERT INTO pause (until) VALUES ($1)"
        " ON CONFLICT (one) DO UPDATE SET until = excluded.until RETURNING since",
        until,
    )
    return Pause(since, until)


async def has_another_end(connection: Connection, until: datetime | None) -> bool:
    """Whether there is a pause and it would end at another time: what it keeps is kept until that time."""
    return bool(await connection.fetchval("SELECT until IS DISTINCT FROM $1 FROM pause", until))


async def end_pause(connection: Connection) -> bool:
    await await_turn(connection)
    return bool(await connection.fetchval("DELETE FROM pause RETURNING true"))


async def read_pause(connection: Connection, now: datetime) -> Pause | None:
    row = await connection.fetchrow(
        "SELECT since, until FROM pause WHERE until IS NULL OR until > $1", now
    )
    return Pause(row["since"], row["until"]) if row else None


async def mind_pause(connection: Connection, now: datetime) -> None:
    """Keep the work for later while the house is paused."""
    pause = await read_pause(connection, now)
    if pause is not None:
        raise Postponed("the owner has paused the house", pause.until or now + LOOK_AGAIN)
