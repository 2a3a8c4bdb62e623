"""A tick over 100,000 schedules of which 100 are due, compared with a table of those 100."""

from __future__ import annotations

import argparse
import asyncio
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median

from benchmarks.helpers import new_home, open_database
from benchmarks.report import Measured, report
from butlers.config.butler import ButlerConfig, DatabaseConfig
from butlers.db.database import Database
from butlers.db.embedded import EmbeddedPostgres
from butlers.domain.clock import SystemClock
from butlers.queue.listener import Listener
from butlers.scheduling.scheduler import Scheduler

ALL = 100_000
DUE = 100
ROUNDS = 25
NINE = datetime(2027, 1, 1, 9, tzinfo=UTC)
FAR = datetime(2100, 1, 1, tzinfo=UTC)
TASKS = """
INSERT INTO scheduled_tasks (id, name, cron, timezone, prompt, next_run_at)
SELECT gen_random_uuid(), $1 || ' ' || n, '0 9 * * *', 'UTC', 'look around',
       $2::timestamptz + n * $3::interval
FROM generate_series(1, $4) AS n
"""


def run(options: argparse.Namespace) -> None:
    with new_home() as home, EmbeddedPostgres(home) as server:
        lines = asyncio.run(_measure(server))
    note = (
        f"{DUE} tasks due, median of {ROUNDS} ticks each; baseline = a table with only those tasks"
    )
    report("ticks", lines, note)


async def _measure(server: EmbeddedPostgres) -> list[Measured]:
    small, large = await open_database(server, "small"), await open_database(server, "large")
    try:
        await _fill(small, 0)
        await _fill(large, ALL - DUE)
        await _rounds(small, large, 2)  # warm
        took = await _rounds(small, large, ROUNDS)
        idle = await _idle(small, large)
    finally:
        await small.close()
        await large.close()
    return [
        Measured(f"tick, {DUE} of {ALL:,} due", took[1] * 1000, "ms", took[0] * 1000),
        Measured(f"tick, none of {ALL:,} due", idle[1] * 1000, "ms", idle[0] * 1000),
    ]


async def _fill(database: Database, others: int) -> None:
    async with database.transaction() as connection:
        await connection.execute(TASKS, "due", NINE, timedelta(0), DUE)
        await connection.execute(TASKS, "other", FAR, timedelta(seconds=7), others)
    await database.pool.execute("ANALYZE")


async def _rounds(small: Database, large: Database, rounds: int) -> tuple[float, float]:
    """Measure both alternately, so that machine load affects both equally."""
    took: dict[Database, list[float]] = {small: [], large: []}
    for _ in range(rounds):
        for database, found in took.items():
            found.append(await _tick(database, DUE))
    return median(took[small]), median(took[large])


async def _idle(small: Database, large: Database) -> tuple[float, float]:
    took: dict[Database, list[float]] = {small: [], large: []}
    for _ in range(ROUNDS):
        for database, found in took.items():
            found.append(await _tick(database, 0))
    return median(took[small]), median(took[large])


async def _tick(database: Database, due: int) -> float:
    """Run one tick at the tasks' next due time, or just before it. No worker takes the runs."""
    await database.pool.execute("TRUNCATE schedule_runs, queue_items")
    now = await database.pool.fetchval(
        "SELECT min(next_run_at) FROM scheduled_tasks WHERE name LIKE 'due %'"
    )
    scheduler = _scheduler(database)
    started = time.perf_counter()
    summary = await scheduler.tick(now if due else now - timedelta(seconds=1))
    took = time.perf_counter() - started
    assert len(summary.names("queued")) == due, summary
    return took


def _scheduler(database: Database) -> Scheduler:
    config = ButlerConfig(
        name="bench", port=0, db=DatabaseConfig(database.login.database), directory=Path()
    )
    listener = Listener(database.login, "bench")
    return Scheduler(config, database, listener, SystemClock(), {})


if __name__ == "__main__":
    run(argparse.Namespace())
