"""A queue that is full of items that wait for a worker, as its own table says."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from butlers.domain.clock import uuid7
from butlers.domain.queues import INBOX
from butlers.queue.leased_queue import BUSY
from support.in_process import InProcessButler

FILLING = "filling-"


async def fill_inbox(switchboard: InProcessButler) -> None:
    """Add as many items as the Switchboard takes; none of them is due today."""
    capacity = switchboard.butler.config.buffer.queue_capacity
    async with switchboard.butler.database.transaction() as connection:
        await connection.executemany(
            "INSERT INTO queue_items (id, queue, key, payload, run_after, max_attempts, error)"
            " VALUES ($1, $2, $3, '{}', now() + interval '2 days', 8, $4)",
            [(uuid7(), INBOX, f"{FILLING}{number}", BUSY) for number in range(capacity)],
        )


async def empty_inbox(switchboard: InProcessButler) -> None:
    await switchboard.rows("DELETE FROM queue_items WHERE starts_with(key, $1)", FILLING)


@asynccontextmanager
async def full_inbox(switchboard: InProcessButler) -> AsyncIterator[None]:
    await fill_inbox(switchboard)
    try:
        yield
    finally:
        await empty_inbox(switchboard)
