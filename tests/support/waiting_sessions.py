"""A butler with three modules, whose sessions wait at doors that a test holds shut."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg

from butlers.db.database import Login
from support.postbox import GOOD, write_postbox
from support.waiting import until

MODULES = ["email", "calendar", "doorman"]  # in the order in which they start
DOORMAN = '''
from typing import Any

from butlers.sdk import SESSIONS, CallContext, Module, tool


@tool(callers=SESSIONS)
async def doorman_wait(ctx: CallContext, door: int) -> dict[str, Any]:
    """Wait until the door is open."""
    await ctx.connection.fetchval("SELECT pg_advisory_xact_lock($1)", door)
    return {"door": door}


class Doorman(Module):
    name = "doorman"
    tools = (doorman_wait,)
'''
REFLEX = r"""
version = 1

[[reflex]]
name = "wait"
pattern = 'wait at door (?P<door>\d+)'
tool = "doorman_wait"
reply = "Door {result.door} is open."
groups = { door = "integer" }
arguments = { door = "{door}" }
"""


def write_doorman(directory: Path, database: str, extra: str = "", *, port: int = 0) -> None:
    """The postbox butler with a doorman. ``extra``: more lines of its section ``[butler]``."""
    write_postbox(
        directory,
        {**GOOD, "doorman": ""},
        extra=f'db.name = "{database}"\n{extra}',
        code={"doorman": DOORMAN},
    )
    toml = directory / "butler.toml"
    toml.write_text(toml.read_text().replace("port = 0", f"port = {port}"))
    skill = directory / "skills" / "doors"
    skill.mkdir(parents=True)
    (skill / "reflex.toml").write_text(REFLEX)


class Doors:
    """What the test holds of a butler's doors, in the butler's own database."""

    def __init__(self, connection: asyncpg.Connection[asyncpg.Record]) -> None:
        self._connection = connection

    async def shut(self, door: int) -> None:
        await self._connection.execute("SELECT pg_advisory_lock($1)", door)

    async def open(self, door: int) -> None:
        assert await self._connection.fetchval("SELECT pg_advisory_unlock($1)", door)

    async def until_waiting(self, *doors: int) -> None:
        """Until sessions stand before these doors."""

        async def wait() -> bool:
            found = await self._connection.fetch(
                """
                SELECT objid::int AS door FROM pg_locks JOIN pg_database ON oid = database
                WHERE datname = current_database() AND locktype = 'advisory' AND NOT granted
                """
            )
            return {row["door"] for row in found} == set(doors)

        await until(f"sessions to wait at {doors}", wait)


@asynccontextmanager
async def shut_doors(admin: Login, database: str, *doors: int) -> AsyncIterator[Doors]:
    connection = await asyncpg.connect(**{**admin.arguments("tests"), "database": database})
    try:
        held = Doors(connection)
        for door in doors:
            await held.shut(door)
        yield held
    finally:
        await connection.close()
