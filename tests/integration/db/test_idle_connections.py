"""Connections of an idle butler: what a burst of work opened is closed again."""

from __future__ import annotations

import asyncio

import pytest

from butlers.db import database as module
from butlers.db.database import Database
from support.waiting import until


async def test_idle_pool_closes_the_connections_of_a_burst(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "UNUSED_S", 0.05)
    opened = await Database.open(database.login, "tests:idle")
    try:
        together = asyncio.Barrier(4)

        async def work() -> None:
            async with opened.transaction() as connection:
                await connection.execute("SELECT 1")
                await together.wait()

        await asyncio.gather(*(work() for _ in range(4)))
        await until("the connections to close", lambda: opened.pool.get_size() <= 1)
        async with opened.transaction() as connection:
            assert await connection.fetchval("SELECT 1") == 1
    finally:
        await opened.close()
