"""Pausing one butler, and letting it go on with what it kept meanwhile."""

from __future__ import annotations

from butlers.routing.routes import ROUTES
from butlers.store import pause, queue
from butlers.store.database import Connection
from butlers.store.pause import Pause
from butlers.store.schedules import SCHEDULES


async def obey(connection: Connection, told: Pause | None) -> bool:
    """Do as the house does. True when that let go what was kept."""
    if told is not None:
        await pause.begin_pause(connection, told.until)
        return False
    ended = await pause.end_pause(connection)
    if ended:
        for waiting in (ROUTES, SCHEDULES):
            await queue.hurry(connection, waiting)
    return ended
