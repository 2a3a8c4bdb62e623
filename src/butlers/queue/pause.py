"""The owner's pause of the fleet: begin, end and read it, and postpone work while it lasts."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from butlers.db.database import Connection, lock_until_commit
from butlers.domain.errors import Postponed
from butlers.domain.json_safe import STRICT
from butlers.domain.queues import ROUTES, SCHEDULES
from butlers.queue import leased_queue as queue

# Delay for work that meets a pause without an end. Ending the pause, or giving it an end, wakes the work.
LOOK_AGAIN = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Pause:
    since: datetime
    until: datetime | None = None  # None: until it is ended
    __pydantic_config__ = STRICT


@dataclass(slots=True)
class PauseState:
    """Number of pause and resume orders that this butler has received.

    The pause in a registration answer is applied only if no order arrived since the registration was sent:
    the answer may be older than the order.
    """

    orders: int = 0


async def lock_pause(connection: Connection, *, shared: bool = False) -> None:
    """Keep the pause from beginning or ending until the transaction ends; ``shared`` locks for reading."""
    await lock_until_commit(connection, "pause", shared=shared)


async def begin_pause(connection: Connection, until: datetime | None) -> Pause:
    await lock_pause(connection)
    since: datetime = await connection.fetchval(
        "INSERT INTO pause (until) VALUES ($1)"
        " ON CONFLICT (one) DO UPDATE SET until = excluded.until RETURNING since",
        until,
    )
    return Pause(since, until)


async def end_pause(connection: Connection) -> bool:
    await lock_pause(connection)
    return bool(await connection.fetchval("DELETE FROM pause RETURNING true"))


async def read_pause(connection: Connection, now: datetime) -> Pause | None:
    row = await connection.fetchrow(
        "SELECT since, until FROM pause WHERE until IS NULL OR until > $1", now
    )
    return Pause(row["since"], row["until"]) if row else None


async def raise_if_paused(connection: Connection, now: datetime) -> None:
    """Raise Postponed while the fleet is paused."""
    pause = await read_pause(connection, now)
    if pause is not None:
        raise Postponed("the owner has paused the fleet", pause.until or now + LOOK_AGAIN)


async def apply_order(connection: Connection, pause: Pause | None, state: PauseState) -> bool:
    """Pause this butler, or resume it (None). Return whether a pause was ended."""
    await lock_pause(connection)
    state.orders += 1
    return await _apply(connection, pause)


async def apply_answer(
    connection: Connection, pause: Pause | None, state: PauseState, orders_before: int
) -> None:
    """Apply the pause in a registration answer, unless an order arrived since the registration was sent."""
    await lock_pause(connection)
    if state.orders == orders_before:
        await _apply(connection, pause)


async def _apply(connection: Connection, pause: Pause | None) -> bool:
    if pause is not None:
        end_moved = await connection.fetchval(
            "SELECT until IS DISTINCT FROM $1 FROM pause", pause.until
        )
        await begin_pause(connection, pause.until)
        if end_moved:
            await _wake_postponed(connection)
        return False
    ended = await end_pause(connection)
    if ended:
        await _wake_postponed(connection)
    return ended


async def _wake_postponed(connection: Connection) -> None:
    """Make postponed work due: it runs, or is postponed to the new end of the pause."""
    for name in (ROUTES, SCHEDULES):
        await queue.make_due(connection, name)
