"""The leased queue compared with a minimal queue, with other projects' queues, and with a backlog.

All on one server and in one run. "Bare" is a table with a unique key and a SKIP LOCKED loop with the same
steps: insert one by one, claim a batch, complete it, each step in its own durable transaction; no lease,
fence, lane, priority, result or wake-up. Both sides are measured alternately in several rounds, and the
round with the median ratio counts, so that machine load affects both sides equally.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from benchmarks import backlog
from benchmarks.helpers import new_home, open_database
from benchmarks.report import Measured, report
from benchmarks.rivals.queues import RIVALS, Rival, Setting
from butlers.channels.console.connector import parse
from butlers.channels.registry import load_channels
from butlers.db.database import Connection, Database
from butlers.db.embedded import EmbeddedPostgres
from butlers.domain.clock import SystemClock, uuid7
from butlers.queue import leased_queue as queue
from butlers.queue.listener import Listener
from butlers.queue.worker import QueueWorker
from butlers.switchboard.ingest import MessageIntake
from butlers.tools.attachments import BlobStore

QUEUE = "bench"
CONNECTIONS, BATCH, ROUNDS = 4, 10, 5
CAPACITY = 1_000_000  # never reached
PAYLOAD = {"text": "weight 80.4 kg", "padding": "x" * 400}
RAW_TABLE = """
CREATE TABLE raw_items (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key text NOT NULL UNIQUE,
    payload jsonb NOT NULL,
    state text NOT NULL DEFAULT 'ready'
);
CREATE INDEX raw_ready ON raw_items (id) WHERE state = 'ready'
"""

Put = Callable[[Connection], Awaitable[object]]
Take = Callable[[Database, int], Awaitable[bool]]
Timed = Callable[[], Awaitable[float]]  # returns items per second
Round = tuple[float, float]  # ours and the other queue's


def run(options: argparse.Namespace) -> None:
    with new_home() as home, EmbeddedPostgres(home) as server:
        lines = asyncio.run(_measure(server, home / "blobs", options.items))
    note = (
        f"{options.items} items a round, {ROUNDS} rounds, {CONNECTIONS} connections (and one that listens); "
        f"workers claim {BATCH}, hold up to {2 * BATCH}, with empty handlers; ratio = ours to the other"
    )
    report("queue", lines, note)


async def _measure(server: EmbeddedPostgres, blobs: Path, items: int) -> list[Measured]:
    database = await open_database(server, "bench", CONNECTIONS)
    switchboard = await open_database(server, "switchboard", CONNECTIONS)
    try:
        async with database.transaction() as connection:
            await connection.execute(RAW_TABLE)
        lines = await _against_bare(database, items)
        lines.append(await _accept_messages(switchboard, database, blobs, items))
        for rival in RIVALS:
            lines += await _against(rival, server, database, items)
        return lines + await backlog.measure(database)
    finally:
        await database.close()
        await switchboard.close()


async def _accept_messages(
    switchboard: Database, database: Database, blobs: Path, items: int
) -> Measured:
    """Measure everything before a message is acknowledged: checks, sender, owner's rules, deduplication,
    storage and queueing."""
    clock = SystemClock()
    intake = MessageIntake(
        clock,
        load_channels(blobs.parent),
        BlobStore(blobs),
        CAPACITY,
        timedelta(minutes=5),
    )

    async def accept(connection: Connection) -> None:
        await intake.accept(connection, parse(PAYLOAD["padding"], clock))

    found = await _in_turn(
        lambda: _put_all(switchboard, items, CONNECTIONS, accept),
        lambda: _put_all(database, items, CONNECTIONS, _raw_put),
    )
    return Measured(f"accept a message, {CONNECTIONS} at once (bare)", *found)


async def _against_bare(database: Database, items: int) -> list[Measured]:
    lines = []
    for workers in (1, CONNECTIONS):
        found = await _in_turn(
            lambda n=workers: _put_all(database, items, n, _enqueue),
            lambda n=workers: _put_all(database, items, n, _raw_put),
        )
        lines.append(Measured(f"enqueue, {workers} at once (bare)", *found, at_least=0.8))
    for batch, many in ((1, items), (BATCH, 4 * items)):  # long enough to measure
        found = await _in_turn(
            lambda n=batch, m=many: _take_all(database, m, n, _claim_and_complete),
            lambda n=batch, m=many: _take_all(database, m, n, _raw_take),
        )
        what = f"claim {batch} and complete, {CONNECTIONS} at once (bare)"
        lines.append(Measured(what, *found, at_least=0.8))
    return lines


async def _against(
    rival: Rival, server: EmbeddedPostgres, database: Database, items: int
) -> list[Measured]:
    if (python := rival.python()) is None:
        print(f"skipped: {rival.name} cannot be installed here")
        return []
    setting = Setting(server, items, CONNECTIONS, BATCH, PAYLOAD["padding"])
    put: list[Round] = []
    worked: list[Round] = []
    for _ in range(ROUNDS):
        ours = await _ours(database, items)
        theirs = await rival.measure(python, setting)
        put.append((ours[0], theirs[0]))
        worked.append((ours[1], theirs[1]))
    return [
        Measured(f"enqueue one by one ({rival})", *_middle(put), at_least=1),
        Measured(f"process by a worker ({rival})", *_middle(worked), at_least=1),
    ]


def _middle(rounds: list[Round]) -> tuple[float, str, float]:
    ours, other = sorted(rounds, key=lambda sides: sides[0] / sides[1])[len(rounds) // 2]
    return ours, "/s", other


async def _ours(database: Database, items: int) -> tuple[float, float]:
    """Enqueue the items, then process them with the daemon's worker."""
    put = await _put_all(database, items, CONNECTIONS, _enqueue)
    left, empty = items, asyncio.Event()

    async def handle(_lease: queue.Lease) -> None:
        nonlocal left
        left -= 1
        if not left:
            empty.set()

    listener = Listener(database.login, "bench")
    listening = asyncio.create_task(listener.run(await listener.open()))
    worker = QueueWorker(database, listener, QUEUE, handle, concurrency=2 * BATCH, batch=BATCH)
    started = time.perf_counter()
    worker.start()
    await empty.wait()
    await worker.stop(60)
    took = time.perf_counter() - started
    listening.cancel()
    return put, items / took


async def _in_turn(ours: Timed, bare: Timed) -> tuple[float, str, float]:
    return _middle([(await ours(), await bare()) for _ in range(ROUNDS)])


async def _put_all(database: Database, items: int, workers: int, put: Put) -> float:
    async def some(count: int) -> None:
        for _ in range(count):
            async with database.transaction() as connection:
                await put(connection)

    started = time.perf_counter()
    await asyncio.gather(*(some(items // workers) for _ in range(workers)))
    return items / (time.perf_counter() - started)


async def _take_all(database: Database, items: int, batch: int, take: Take) -> float:
    put = _enqueue if take is _claim_and_complete else _raw_put
    async with database.transaction() as connection:
        for _ in range(items):
            await put(connection)

    async def until_empty() -> None:
        while await take(database, batch):
            pass

    started = time.perf_counter()
    await asyncio.gather(*(until_empty() for _ in range(CONNECTIONS)))
    return items / (time.perf_counter() - started)


async def _enqueue(connection: Connection) -> None:
    await queue.enqueue(connection, QUEUE, str(uuid7()), PAYLOAD)  # the key of a message


async def _raw_put(connection: Connection) -> None:
    await connection.execute(
        "INSERT INTO raw_items (key, payload) VALUES ($1, $2) ON CONFLICT DO NOTHING",
        str(uuid7()),
        PAYLOAD,
    )


async def _claim_and_complete(database: Database, batch: int) -> bool:
    async with database.transaction() as connection:
        leases = await queue.claim(connection, QUEUE, 1, limit=batch)
    if not leases:
        return False
    async with database.transaction() as connection:
        await queue.complete_all(connection, [(lease, None) for lease in leases])
    return True


async def _raw_take(database: Database, batch: int) -> bool:
    async with database.transaction() as connection:
        rows: list[Any] = await connection.fetch(
            """
            UPDATE raw_items SET state = 'taken' WHERE id IN (
                SELECT id FROM raw_items WHERE state = 'ready'
                ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED
            ) RETURNING id, payload
            """,
            batch,
        )
    if not rows:
        return False
    async with database.transaction() as connection:
        ids = [row["id"] for row in rows]
        await connection.execute(
            "UPDATE raw_items SET state = 'done' WHERE id = ANY($1::bigint[])", ids
        )
    return True
