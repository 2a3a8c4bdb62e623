"""Cost of a claim with a backlog, compared with an empty queue."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from benchmarks.report import Measured, percentile
from butlers.db.database import Database
from butlers.queue import leased_queue as queue

MANY, LANES, BEHIND, BEHIND_RUNNING = 100_000, 10_000, 10_000, 1_000
CLAIMS = 100
AWAY = timedelta(hours=1)
FILL = """
INSERT INTO queue_items (id, queue, key, payload, max_attempts, run_after, lane)
SELECT format('%s-0000-7000-8000-%s', left(md5($1), 8), lpad(to_hex(number), 12, '0'))::uuid, $1,
       number::text, '{}', 8, now(), $3 || (number % $4)
FROM generate_series(1, $2::int) AS number
"""


@dataclass(frozen=True, slots=True)
class Backlog:
    queue: str
    what: str
    items: int
    lane: str | None = None
    lanes: int = 1
    first: str | None = None  # state of the first item in the lane: "waits" or "runs"


BACKLOGS = (
    Backlog("many", f"{MANY:,} that wait", MANY),
    Backlog("lanes", f"{MANY:,} in {LANES:,} lanes", MANY, "lane ", LANES),
    Backlog("behind", f"{BEHIND:,} behind one that waits", BEHIND, "lane ", first="waits"),
    Backlog(
        "running", f"{BEHIND_RUNNING:,} behind one that runs", BEHIND_RUNNING, "lane ", first="runs"
    ),
)


async def measure(database: Database) -> list[Measured]:
    for backlog in BACKLOGS:
        await _fill(database, backlog)
    took: dict[str, list[float]] = {name: [] for name in ("empty", *_names())}
    for _ in range(CLAIMS):  # alternate, so that machine load affects all equally
        for name, found in took.items():
            found.append(await _claim(database, name))
    base = percentile(took["empty"], 50)
    return [
        Measured(
            f"claim and complete one, {backlog.what} (none), p50",
            percentile(took[backlog.queue], 50),
            "ms",
            base,
            at_most=1.5,
        )
        for backlog in BACKLOGS
    ]


def _names() -> Sequence[str]:
    return [backlog.queue for backlog in BACKLOGS]


async def _fill(database: Database, backlog: Backlog) -> None:
    async with database.transaction() as connection:
        if backlog.first:  # the other items of the lane wait for it
            await queue.enqueue(connection, backlog.queue, "first", {}, lane="lane 0")
        await connection.execute(FILL, backlog.queue, backlog.items, backlog.lane, backlog.lanes)
        if backlog.first:
            (first,) = await queue.claim(connection, backlog.queue, 1)
            if backlog.first == "waits":
                await queue.wait(connection, first, "away", AWAY, AWAY)
    await database.pool.execute("VACUUM ANALYZE queue_items")


async def _claim(database: Database, name: str) -> float:
    """Enqueue, claim and complete one item; return the milliseconds of claim and complete."""
    async with database.transaction() as connection:
        await queue.enqueue(connection, name, f"{time.perf_counter_ns()}", {}, priority=0)
    started = time.perf_counter()
    async with database.transaction() as connection:
        (lease,) = await queue.claim(connection, name, 1)
    async with database.transaction() as connection:
        await queue.complete(connection, lease)
    return (time.perf_counter() - started) * 1000
