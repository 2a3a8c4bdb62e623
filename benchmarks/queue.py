"""The leased queue against the least that would do: a bare table and a SKIP LOCKED loop, same server."""

from __future__ import annotations

import argparse
import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable

from benchmarks.fleet import new_home
from benchmarks.report import Measured, report
from butlers.store import queue
from butlers.store.database import Connection, Database, Login
from butlers.store.embedded import EmbeddedPostgres
from butlers.store.migrations import butler_chains, migrate, shipped_versions
from butlers.store.provision import Place, Provisioner
from butlers.wire.tokens import FleetKey

QUEUE = "bench"
WORKERS = (1, 4)
PAYLOAD = {"text": "weight 80.4 kg", "padding": "x" * 400}
RAW_TABLE = """
CREATE TABLE raw_items (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    payload jsonb NOT NULL,
    state text NOT NULL DEFAULT 'ready'
);
CREATE INDEX raw_ready ON raw_items (id) WHERE state = 'ready'
"""

Put = Callable[[Connection, int], Awaitable[object]]
Take = Callable[[Database], Awaitable[bool]]


def run(options: argparse.Namespace) -> None:
    with new_home() as home, EmbeddedPostgres(home) as server:
        lines = asyncio.run(_measure(server, options.items))
    note = f"{options.items} items, each step its own durable transaction; ratio = ours to bare"
    report("queue", lines, note)


async def _measure(server: EmbeddedPostgres, items: int) -> list[Measured]:
    admin = Login(server.dsn(), "postgres", None, "postgres")
    provisioner = Provisioner(admin, FleetKey(secrets.token_bytes(32)))
    login = await provisioner.provision(Place("bench", "bench", None))
    await migrate(login, butler_chains("bench", shipped_versions()))
    database = await Database.open(login, "bench")
    try:
        async with database.transaction() as connection:
            await connection.execute(RAW_TABLE)
        return await _compare(database, items)
    finally:
        await database.close()


async def _compare(database: Database, items: int) -> list[Measured]:
    lines = []
    for workers in WORKERS:
        put = await _put_all(database, items, workers, _enqueue)
        bare_put = await _put_all(database, items, workers, _raw_put)
        lines.append(Measured(f"enqueue, {workers} at once", put, "/s", bare_put))
        taken = await _take_all(database, items, workers, _claim_and_complete)
        bare_taken = await _take_all(database, items, workers, _raw_take)
        lines.append(Measured(f"claim and complete, {workers} at once", taken, "/s", bare_taken))
    await _put_all(database, items, 4, _enqueue)
    batched = await _take_all(database, items, 1, _claim_ten)
    lines.append(Measured("claim ten and complete each, 1 at once", batched, "/s"))
    return lines


async def _put_all(database: Database, items: int, workers: int, put: Put) -> float:
    async def some(count: int) -> None:
        for number in range(count):
            async with database.transaction() as connection:
                await put(connection, number)

    started = time.perf_counter()
    await asyncio.gather(*(some(items // workers) for _ in range(workers)))
    return items / (time.perf_counter() - started)


async def _take_all(database: Database, items: int, workers: int, take: Take) -> float:
    async def until_empty() -> None:
        while await take(database):
            pass

    started = time.perf_counter()
    await asyncio.gather(*(until_empty() for _ in range(workers)))
    return items / (time.perf_counter() - started)


async def _enqueue(connection: Connection, _number: int) -> None:
    await queue.enqueue(connection, QUEUE, secrets.token_hex(16), PAYLOAD)


async def _raw_put(connection: Connection, _number: int) -> None:
    await connection.execute("INSERT INTO raw_items (payload) VALUES ($1)", PAYLOAD)


async def _claim_and_complete(database: Database, limit: int = 1) -> bool:
    async with database.transaction() as connection:
        leases = await queue.claim(connection, QUEUE, 1, limit=limit)
    for lease in leases:
        async with database.transaction() as connection:
            await queue.complete(connection, lease)
    return bool(leases)


async def _claim_ten(database: Database) -> bool:
    return await _claim_and_complete(database, 10)


async def _raw_take(database: Database) -> bool:
    async with database.transaction() as connection:
        taken = await connection.fetchval(
            """
            UPDATE raw_items SET state = 'taken' WHERE id = (
                SELECT id FROM raw_items WHERE state = 'ready'
                ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED
            ) RETURNING id
            """
        )
    if taken is None:
        return False
    async with database.transaction() as connection:
        await connection.execute("UPDATE raw_items SET state = 'done' WHERE id = $1", taken)
    return True
