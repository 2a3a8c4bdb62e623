"""A loop that claims items of one queue, works on them under their leases, and settles them.

The handler finishes by returning (its value is kept as the item's result) or raises. A retryable error,
or one nobody foresaw, comes back later with a growing delay; a permanent one goes to the dead letter.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import Any

import structlog

from butlers.domain.errors import ButlersError, DatabaseUnavailable, LeaseLost
from butlers.domain.faults import kill_point
from butlers.store import queue
from butlers.store.database import Database
from butlers.store.listener import Listener
from butlers.store.queue import Lease

log = structlog.get_logger()

Handler = Callable[[Lease], Awaitable[Any]]

SCAN_S = 5.0  # a look without a wake-up, for items whose delay has run out
BACKOFF_BASE_S = 0.5
BACKOFF_CAP_S = 60.0


def backoff(attempt: int) -> timedelta:
    """Exponential with full jitter on the upper half, so that retries do not march in step."""
    ceiling = min(BACKOFF_CAP_S, BACKOFF_BASE_S * 2 ** (attempt - 1))
    return timedelta(seconds=ceiling * random.uniform(0.5, 1.0))


class QueueWorker:
    def __init__(
        self,
        database: Database,
        listener: Listener,
        queue_name: str,
        handler: Handler,
        *,
        concurrency: int = 1,
        lease: timedelta = queue.LEASE,
    ) -> None:
        self.queue = queue_name
        self._database = database
        self._listener = listener
        self._handler = handler
        self._concurrency = concurrency
        self._lease = lease
        self._running: dict[asyncio.Task[None], Lease] = {}
        self._loops: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._loops = [
            asyncio.create_task(self._claim_forever(), name=f"worker:{self.queue}"),
            asyncio.create_task(self._keep_leases(), name=f"leases:{self.queue}"),
        ]

    async def stop(self, grace_s: float) -> None:
        """Claim nothing more, let running items end, and give back those that do not in time."""
        claiming, keeping = self._loops
        claiming.cancel()
        if self._running:
            _, late = await asyncio.wait(self._running, timeout=grace_s)
            if late:
                log.warning(
                    "items did not end in time; given back", queue=self.queue, items=len(late)
                )
        keeping.cancel()
        await asyncio.gather(claiming, keeping, return_exceptions=True)
        await self._give_back()

    async def _claim_forever(self) -> None:
        with self._listener.wakes(self.queue) as wake:
            while True:
                wake.clear()
                try:
                    more = await self._fill(wake)
                except DatabaseUnavailable:
                    more = False
                    await asyncio.sleep(BACKOFF_BASE_S)
                if not more:
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(wake.wait(), SCAN_S)

    async def _fill(self, wake: asyncio.Event) -> bool:
        """Start as many due items as there are free slots. True when more may be due at once."""
        free = self._concurrency - len(self._running)
        if free <= 0:
            return False
        async with self._database.transaction() as connection:
            leases = await queue.claim(
                connection, self.queue, self._listener.holder, limit=free, lease=self._lease
            )
        for lease in leases:
            task = asyncio.create_task(self._work(lease))
            self._running[task] = lease
            task.add_done_callback(partial(self._ended, wake))
        return len(leases) == free

    def _ended(self, wake: asyncio.Event, task: asyncio.Task[None]) -> None:
        self._running.pop(task, None)
        wake.set()

    async def _work(self, lease: Lease) -> None:
        logger = log.bind(queue=self.queue, item=lease.key, attempt=lease.attempt)
        kill_point(f"{self.queue}.claimed")
        try:
            result = await self._handler(lease)
            kill_point(f"{self.queue}.handled")
            await self._settle(queue.complete, lease, result)
            kill_point(f"{self.queue}.completed")
        except ButlersError as error:
            logger.warning("item failed", error=str(error), retryable=error.retryable)
            if error.retryable:
                await self._settle(queue.retry, lease, str(error), backoff(lease.attempt))
            else:
                await self._settle(queue.bury, lease, str(error))
        except Exception as error:  # a loop edge: one bad item must not stop the queue
            logger.exception("item crashed")
            text = f"{type(error).__name__}: {error}"
            await self._settle(queue.retry, lease, text, backoff(lease.attempt))

    async def _settle(self, settle: Callable[..., Awaitable[None]], *arguments: Any) -> None:
        try:
            async with self._database.transaction() as connection:
                await settle(connection, *arguments)
        except LeaseLost as lost:
            log.warning("late work refused", queue=self.queue, reason=str(lost))
        except DatabaseUnavailable:
            # The lease runs out or the lock is dropped, and the item is worked on again; what its
            # first run did is in the journal.
            log.warning("could not settle an item; it will be recovered", queue=self.queue)

    async def _keep_leases(self) -> None:
        while True:
            await asyncio.sleep(self._lease.total_seconds() / 3)
            held = dict(self._running)
            if not held:
                continue
            try:
                async with self._database.transaction() as connection:
                    ours = await queue.extend(connection, list(held.values()), self._lease)
            except DatabaseUnavailable:
                continue
            for task, lease in held.items():
                if lease.item_id not in ours and not task.done():
                    log.warning("lease lost while working", queue=self.queue, item=lease.key)
                    task.cancel()

    async def _give_back(self) -> None:
        held = dict(self._running)
        for task in held:
            task.cancel()
        await asyncio.gather(*held, return_exceptions=True)
        for task, lease in held.items():
            if task.cancelled():
                await self._settle(queue.release, lease)
