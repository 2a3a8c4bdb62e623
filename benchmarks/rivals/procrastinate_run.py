"""procrastinate over psycopg (it has no asyncpg connector): defer jobs one by one, then drain them with its
worker, which fetches one job at a time. Prints the rates; same arguments as ``pgqueuer_run``.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

from procrastinate import App, PsycopgConnector


async def measure(dsn: str, items: int, connections: int, batch: int, payload: str) -> list[float]:
    # Its listener uses one connection of the pool.
    app = App(
        connector=PsycopgConnector(conninfo=dsn, min_size=connections + 1, max_size=connections + 1)
    )
    done = 0

    @app.task(name="bench")
    async def handle(payload: str) -> None:
        nonlocal done
        done += 1

    async with app.open_async():
        await app.schema_manager.apply_schema_async()

        async def put() -> None:
            for _ in range(items // connections):
                await handle.defer_async(payload=payload)

        started = time.perf_counter()
        await asyncio.gather(*(put() for _ in range(connections)))
        ingest = items / (time.perf_counter() - started)

        started = time.perf_counter()
        await app.run_worker_async(concurrency=2 * batch, wait=False, install_signal_handlers=False)
        work = items / (time.perf_counter() - started)
        if done != items:
            raise RuntimeError(f"{done} of {items} jobs were done")
        return [ingest, work]


if __name__ == "__main__":
    dsn, items, connections, batch, payload = sys.argv[1:]
    print(json.dumps(asyncio.run(measure(dsn, int(items), int(connections), int(batch), payload))))
