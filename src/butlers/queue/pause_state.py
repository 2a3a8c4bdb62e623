"""Pausing one butler, and letting it go on with what it kept meanwhile."""

from __future__ import annotations

from dataclasses import dataclass

from butlers.db.database import Connection
from butlers.queue import leased_queue as queue
from butlers.queue import pause
from butlers.queue.pause import Pause
from butlers.scheduling.store import SCHEDULES
from butlers.sessions.routes import ROUTES


@dataclass(slots=True)
class House:
    """How often the house has told this butler to pause or to go on. What it says in an answer counts only
    if nothing else was told since it was asked: the answer may be older."""

    words: int = 0


async def obey(connection: Connection, told: Pause | None, house: House) -> bool:
    """Do as the house says now. True when that let go what was kept."""
    await pause.await_turn(connection)
    house.words += 1
    return await _do(connection, told)


async def obey_answer(
    connection: Connection, told: Pause | None, house: House, asked_at: int
) -> None:
    """Do as the house said when it was asked, unless it has said something else meanwhile."""
    await pause.await_turn(connection)
    if house.words == asked_at:
        await _do(connection, told)


async def _do(connection: Connection, told: Pause | None) -> bool:
    if told is not None:
        moved = await pause.has_another_end(connection, told.until)
        await pause.begin_pause(connection, told.until)
        if moved:
            await _wake(connection)
        return False
    ended = await pause.end_pause(connection)
    if ended:
        await _wake(connection)
    return ended


async def _wake(connection: Connection) -> None:
    """What was kept goes on, or is kept until the new end."""
    for waiting in (ROUTES, SCHEDULES):
        await queue.hurry(connection, waiting)
