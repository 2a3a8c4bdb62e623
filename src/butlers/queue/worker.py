"""A loop that claims items of one queue, works on them under their leases, and settles them.

The handler finishes by returning (its value is kept as the item's result; a ``Finish`` has something written
in the transaction that ends the item, so that there is both or neither) or raises. A retryable error says
that somebody else is away: the item waits for them, and that is no attempt. One that nobody foresaw is tried
again with a growing delay, a few times; a permanent one goes to the dead letter.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import structlog

from butlers.db.database import Connection, Database
from butlers.domain import tasks
from butlers.domain.errors import (
    ButlersError,
    DatabaseUnavailable,
    EarlierMessageWaits,
    LeaseLost,
    Postponed,
    RateLimited,
)
from butlers.domain.faults import kill_point
from butlers.queue import leased_queue as queue
from butlers.queue.completions import Completions
from butlers.queue.leased_queue import Lease
from butlers.queue.listener import Listener
from butlers.wire import telemetry

log = structlog.get_logger()

Handler = Callable[[Lease], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Finish:
    """A result, and what has to be written with it: a second run must not find the one without the other."""

    result: Any
    write: Callable[[Connection], Awaitable[object]]


CLAIM_S = 5.0  # a stop does not abandon a claim that is on its way, unless the database hangs
MEASURE_S = 10.0  # between two looks at how many items wait, when somebody collects
SCAN_S = 5.0  # a look without a wake-up, for items whose delay has run out
LIMITED_PAUSE, LONGEST_ASKED_PAUSE = timedelta(minutes=5), timedelta(hours=1)
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
        batch: int = 50,
        streak: int = 10,
    ) -> None:
        """``streak``: after so many items of one urgency in a row, a less urgent one has its turn."""
        self.queue = queue_name
        self._database = database
        self._listener = listener
        self._handler = handler
        self._concurrency = concurrency
        self._lease = lease
        self._batch = batch
        self._longest_streak = streak
        self._passed_over: dict[
            int, int
        ] = {}  # by urgency: so many in a row were as urgent or more
        self._completions = Completions(database)
        self._running: dict[asyncio.Task[None], Lease] = {}
        self._loops: list[asyncio.Task[None]] = []
        self._wake = asyncio.Event()

    def start(self) -> None:
        self._loops = [
            asyncio.create_task(self._claim_forever(), name=f"worker:{self.queue}"),
            asyncio.create_task(self._keep_leases(), name=f"leases:{self.queue}"),
        ]
        if telemetry.is_on():
            measuring = asyncio.create_task(self._measure(), name=f"measure:{self.queue}")
            self._loops.append(measuring)

    async def stop(self, grace_s: float) -> None:
        """Claim nothing more, let running items end, and give back those that do not in time."""
        claiming, *others = self._loops
        claiming.cancel()
        await asyncio.wait({claiming}, timeout=CLAIM_S)
        if self._running:
            _, late = await asyncio.wait(self._running, timeout=grace_s)
            if late:
                log.warning(
                    "items did not end in time; given back", queue=self.queue, items=len(late)
                )
        await tasks.end(claiming, *others)
        await self._give_back()
        await self._completions.close()

    async def _claim_forever(self) -> None:
        with self._listener.wakes(self.queue, self._wake):
            while True:
                self._wake.clear()
                more = False
                try:
                    more = await self._fill()
                except DatabaseUnavailable:
                    await asyncio.sleep(BACKOFF_BASE_S)
                except Exception:  # a loop edge: a queue that nobody claims from is lost
                    log.exception("could not claim", queue=self.queue)
                if not more:
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._wake.wait(), SCAN_S)

    async def _fill(self) -> bool:
        """Start as many due items as there are free slots. True when more may be due at once."""
        free = self._concurrency - len(self._running)
        if free <= 0 or not self._listener.vouches:
            return False
        claiming = asyncio.ensure_future(self._claim(free))
        try:
            leases = await asyncio.shield(claiming)
        except asyncio.CancelledError:
            # It may commit all the same; stop() must know of it, to give it back uncounted.
            with contextlib.suppress(Exception):
                self._begin(await claiming)
            raise
        self._begin(leases)
        return len(leases) == min(free, self._batch)

    async def _claim(self, limit: int) -> list[Lease]:
        limit = min(limit, self._batch)
        claim = partial(queue.claim, queue=self.queue, holder=self._listener.holder)
        async with self._database.transaction() as connection:
            turn: list[Lease] = []
            for urgency in self._favoured():
                turn = await claim(connection, limit=1, lease=self._lease, below=urgency)
                self._passed_over[urgency] = 0  # also where nothing less urgent waits
                if turn:
                    break
            rest = limit - len(turn)
            return turn + (await claim(connection, limit=rest, lease=self._lease) if rest else [])

    def _begin(self, leases: list[Lease]) -> None:
        for lease in leases:
            self._count(lease.priority)
            task = asyncio.create_task(self._work(lease))
            self._running[task] = lease
            task.add_done_callback(self._ended)

    def _favoured(self) -> list[int]:
        """Urgencies beyond which nothing had its turn for too long, the least urgent first."""
        favoured = (
            urgency for urgency, items in self._passed_over.items() if items >= self._longest_streak
        )
        return sorted(favoured, reverse=True)

    def _count(self, urgency: int) -> None:
        self._passed_over.setdefault(urgency, 0)
        for known, items in self._passed_over.items():
            self._passed_over[known] = items + 1 if urgency <= known else 0

    def _ended(self, task: asyncio.Task[None]) -> None:
        lease = self._running.pop(task)
        self._wake.set()
        if not task.cancelled() and (error := task.exception()):
            log.error("could not settle an item", item=lease.key, exc_info=error)

    async def _work(self, lease: Lease) -> None:
        with telemetry.item_span(self.queue, lease.payload, lease.attempt) as span:
            await self._attempt(lease, span)

    async def _attempt(self, lease: Lease, span: telemetry.Span) -> None:
        kill_point(f"{self.queue}.claimed")
        try:
            result = await self._handler(lease)
            kill_point(f"{self.queue}.handled")
            if isinstance(result, Finish):
                await self._settle(_finish, lease, result)
            else:
                await self._completions.complete(lease, result)
            kill_point(f"{self.queue}.completed")
        except Postponed as error:
            self._log(lease).info("item postponed", why=str(error), until=error.until.isoformat())
            why = _storable(str(error))
            await self._settle(queue.postpone, lease, why, error.until, error.aside)
            pause = (error.until - datetime.now(UTC)).total_seconds()
            if pause < SCAN_S:  # as in _try_later: nobody else would wake us in time
                asyncio.get_running_loop().call_later(max(pause, 0), self._wake.set)
        except EarlierMessageWaits as error:
            # No pause: its lane holds it back, and the end of the one before it wakes us.
            await self._settle(queue.release, lease, _storable(str(error)))
        except ButlersError as error:
            span.fail(str(error))
            self._log(lease).warning("item failed", error=str(error), retryable=error.retryable)
            if error.retryable:
                await self._wait(lease, error)
            else:
                await self._settle(queue.bury, lease, _storable(str(error)))
        except asyncio.CancelledError:
            if (task := asyncio.current_task()) and task.cancelling():
                raise
            await self._try_later(lease, "what it waited for was cancelled")
        except Exception as error:  # a loop edge: one bad item must not stop the queue
            span.fail(f"{type(error).__name__}: {error}")
            logger = self._log(lease)
            logger.exception("item crashed")
            await self._try_later(lease, f"{type(error).__name__}: {error}")

    def _log(self, lease: Lease) -> Any:
        return log.bind(queue=self.queue, item=lease.key, attempt=lease.attempt)

    async def _wait(self, lease: Lease, error: ButlersError) -> None:
        shortest, longest = queue.SHORTEST_PAUSE, queue.LONGEST_PAUSE
        if isinstance(error, RateLimited):  # to ask often is what it was limited for
            longest = LIMITED_PAUSE
            # The jitter goes both ways; what was asked for is the least.
            asked = timedelta(seconds=error.after_s or 0) / 0.75
            shortest = max(shortest, min(asked, LONGEST_ASKED_PAUSE))
        elif isinstance(error, DatabaseUnavailable):
            longest = shortest  # it is back by the time that this is written down
        await self._settle(queue.wait, lease, _storable(str(error)), shortest, longest)
        # The first pauses are shorter than a scan, and nothing is notified when one runs out.
        soon = queue.SHORTEST_PAUSE.total_seconds() * 1.3
        asyncio.get_running_loop().call_later(soon, self._wake.set)

    async def _try_later(self, lease: Lease, error: str) -> None:
        delay = backoff(lease.attempt)
        await self._settle(queue.retry, lease, _storable(error), delay)
        # Nothing is notified when a delay runs out, so we set the alarm ourselves.
        asyncio.get_running_loop().call_later(delay.total_seconds(), self._wake.set)

    async def _settle(
        self, settle: Callable[..., Awaitable[None]], *arguments: Any, patient: bool = True
    ) -> None:
        """Write an item's end down. Through an outage of the database it keeps trying: the item stays
        ours, until LeaseLost says that another took it over."""
        waited, point = False, f"{self.queue}.{settle.__name__}"
        while True:
            try:
                async with self._database.transaction() as connection:
                    await settle(connection, *arguments)
                    kill_point(f"{point}.before_commit")
                kill_point(f"{point}.committed")
            except LeaseLost as lost:
                log.warning("late work refused", queue=self.queue, reason=str(lost))
            except DatabaseUnavailable:
                if not waited:
                    log.warning("could not settle an item yet", queue=self.queue)
                if patient:
                    waited = True
                    await asyncio.sleep(BACKOFF_BASE_S)
                    continue
            return

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
            except Exception:  # a loop edge: the leases of the others must be kept too
                log.exception("could not extend leases", queue=self.queue)
                continue
            for task, lease in held.items():
                if lease.item_id not in ours and not task.done():
                    log.warning("lease lost while working", queue=self.queue, item=lease.key)
                    task.cancel()

    async def _measure(self) -> None:
        while True:
            try:
                async with self._database.transaction() as connection:
                    depths = await queue.depths(connection)
                telemetry.measure_queue(self.queue, depths.get(self.queue, {}))
            except DatabaseUnavailable:
                pass
            except Exception:  # a loop edge
                log.exception("could not measure", queue=self.queue)
            await asyncio.sleep(MEASURE_S)

    async def _give_back(self) -> None:
        held = dict(self._running)
        for task in held:
            task.cancel()
        await asyncio.gather(*held, return_exceptions=True)
        for task, lease in held.items():
            if task.cancelled():
                await self._settle(queue.release, lease, patient=False)


async def _finish(connection: Connection, lease: Lease, finish: Finish) -> None:
    await finish.write(connection)
    await queue.complete(connection, lease, finish.result)


def _storable(text: str) -> str:
    """PostgreSQL's text has no NUL, and UTF-8 no lone surrogates; an error may quote either."""
    return text.replace("\x00", "\\0").encode("utf-8", "backslashreplace").decode()
