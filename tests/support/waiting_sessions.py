"""A butler with three modules, whose sessions wait for locks that a test holds shut."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg

from butlers.db.database import Login
from support.postbox import GOOD, write_postbox
from support.waiting import until

MODULES = ["email", "calendar", "locks"]  # in the order in which they start
LOCK_MODULE = '''
from typing import Any

from butlers.sdk import SESSIONS, CallContext, Module, tool


@tool(callers=SESSIONS)
async def locks_wait(ctx: CallContext, lock: int) -> dict[str, Any]:
    """Wait until the lock is free."""
    await ctx.connection.fetchval("SELECT pg_advisory_xact_lock($1)", lock)
    return {"lock": lock}


class LockWaiting(Module):
    name = "locks"
    tools = (locks_wait,)
'''
REFLEX = r"""
version = 1

[[reflex]]
name = "wait"
pattern = 'wait for lock (?P<lock>\d+)'
tool = "locks_wait"
reply = "Lock {result.lock} is free."
groups = { lock = "integer" }
arguments = { lock = "{lock}" }
"""


def write_waiting_butler(directory: Path, database: str, extra: str = "", *, port: int = 0) -> None:
    """Write the postbox butler with a module that waits for locks. ``extra``: more lines of ``[butler]``."""
    write_postbox(
        directory,
        {**GOOD, "locks": ""},
        extra=f'db.name = "{database}"\n{extra}',
        code={"locks": LOCK_MODULE},
    )
    toml = directory / "butler.toml"
    toml.write_text(toml.read_text().replace("port = 0", f"port = {port}"))
    skill = directory / "skills" / "locks"
    skill.mkdir(parents=True)
    (skill / "reflex.toml").write_text(REFLEX)


class HeldLocks:
    """The advisory locks that a test holds in a butler's database."""

    def __init__(self, connection: asyncpg.Connection[asyncpg.Record]) -> None:
        self._connection = connection

    async def acquire(self, lock: int) -> None:
        await self._connection.execute("SELECT pg_advisory_lock($1)", lock)

    async def release(self, lock: int) -> None:
        assert await self._connection.fetchval("SELECT pg_advisory_unlock($1)", lock)

    async def until_waiting(self, *locks: int) -> None:
        """Wait until sessions wait for exactly these locks."""

        async def wait() -> bool:
            found = await self._connection.fetch(
                """
                SELECT objid::int AS lock FROM pg_locks JOIN pg_database ON oid = database
                WHERE datname = current_database() AND locktype = 'advisory' AND NOT granted
                """
            )
            return {row["lock"] for row in found} == set(locks)

        await until(f"sessions to wait for locks {locks}", wait)


@asynccontextmanager
async def held_locks(admin: Login, database: str, *locks: int) -> AsyncIterator[HeldLocks]:
    connection = await asyncpg.connect(**{**admin.arguments("tests"), "database": database})
    try:
        held = HeldLocks(connection)
        for lock in locks:
            await held.acquire(lock)
        yield held
    finally:
        await connection.close()
