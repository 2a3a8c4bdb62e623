"""The queue's figures: how many items wait, and how many were taken back from a dead worker."""

from __future__ import annotations

import asyncio
import secrets
from datetime import timedelta
from typing import Any

from butlers.config.settings import Settings
from butlers.db.database import Database
from butlers.domain.errors import PeerUnavailable
from butlers.domain.trace import current_trace
from butlers.queue import leased_queue as queue
from butlers.queue.leased_queue import Lease
from butlers.queue.listener import Listener
from butlers.queue.worker import QueueWorker
from butlers.wire.telemetry import collecting
from support.collector import Collector
from support.waiting import until


async def test_recovered_items_are_counted(
    database: Database, collector: Collector, settings: Settings
) -> None:
    dead = secrets.randbits(62)  # a holder that vouches for nothing
    with collecting(settings):
        async with database.transaction() as connection:
            for key in ("a", "b"):
                await queue.enqueue(connection, "routes", key, {})
            await queue.enqueue(connection, "notify", "c", {})
        async with database.transaction() as connection:
            assert len(await queue.claim(connection, "routes", dead, limit=9)) == 2
            assert len(await queue.claim(connection, "notify", dead, limit=9)) == 1
            assert await queue.recover(connection) == 3
            assert await queue.recover(connection) == 0
    counted = {
        point.attributes["queue"]: point.value
        for point in collector.points("butlers.queue.lease_expiries")
    }
    assert counted == {"routes": 2, "notify": 1}


async def test_a_worker_works_in_the_items_trace_and_tells_the_depth(
    database: Database, collector: Collector, settings: Settings
) -> None:
    seen: list[tuple[str, str]] = []

    async def handle(lease: Lease) -> Any:
        trace = current_trace()
        assert trace is not None
        seen.append((lease.key, trace.trace_id))
        if lease.key == "later" and [key for key, _ in seen].count("later") == 1:
            raise PeerUnavailable("away")

    async with database.transaction() as connection:
        for key in ("one", "two", "later"):
            payload = {"request": {"trace_id": key.encode().hex().zfill(32)}}
            await queue.enqueue(connection, "routes", key, payload)
        await queue.enqueue(connection, "routes", "loose", {})
        await queue.enqueue(connection, "routes", "tomorrow", {}, delay=timedelta(days=1))
    listener = Listener(database.login, "tests")
    listening = asyncio.create_task(listener.run(await listener.open()))
    with collecting(settings):
        worker = QueueWorker(database, listener, "routes", handle, concurrency=4)
        worker.start()
        await until("all to be handled", lambda: len(seen) == 5 or None)
        await worker.stop(5)
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)

    for key, trace_id in seen:
        if key != "loose":
            assert trace_id == key.encode().hex().zfill(32)
    spans = [span for span in collector.spans() if span.name == "butler.queue.routes"]
    assert len(spans) == 5
    (failed,) = (span for span in spans if span.failed)
    assert failed.failure == "away"
    assert failed.attributes["butlers.attempt"] == 1
    ready = [
        point.value
        for point in collector.points("butlers.queue.depth")
        if point.attributes == {"queue": "routes", "state": "ready"}
    ]
    assert ready
    assert ready[0] >= 1  # tomorrow's waits in any case
