"""pgqueuer over asyncpg: enqueue jobs one by one, then drain them with its worker. Prints the rates.

Run by ``benchmarks.rivals.queues`` with DSN, number of items and connections, batch size and payload.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from datetime import timedelta

import asyncpg
from pgqueuer.db import AsyncpgPoolDriver
from pgqueuer.models import Job
from pgqueuer.qm import QueueManager
from pgqueuer.queries import Queries
from pgqueuer.types import QueueExecutionMode


async def measure(
    dsn: str, items: int, connections: int, batch: int, payload: bytes
) -> list[float]:
    # Its listener uses one connection of the pool.
    async with asyncpg.create_pool(dsn, min_size=connections + 1, max_size=connections + 1) as pool:
        driver = AsyncpgPoolDriver(pool)
        queries = Queries(driver)
        await queries.install()

        async def put() -> None:
            for _ in range(items // connections):
                await queries.enqueue("bench", payload)

        started = time.perf_counter()
        await asyncio.gather(*(put() for _ in range(connections)))
        ingest = items / (time.perf_counter() - started)

        done = 0
        manager = QueueManager(queries)

        @manager.entrypoint("bench")
        async def handle(_job: Job) -> None:
            nonlocal done
            done += 1

        started = time.perf_counter()
        await manager.run(
            batch_size=batch,
            max_concurrent_tasks=2 * batch,
            mode=QueueExecutionMode.drain,
            dequeue_timeout=timedelta(seconds=1),
            log_aggregation_interval=timedelta(0),
        )
        work = items / (time.perf_counter() - started)
        if done != items:
            raise RuntimeError(f"{done} of {items} jobs were done")
        return [ingest, work]


if __name__ == "__main__":
    dsn, items, connections, batch, payload = sys.argv[1:]
    print(
        json.dumps(
            asyncio.run(measure(dsn, int(items), int(connections), int(batch), payload.encode()))
        )
    )
