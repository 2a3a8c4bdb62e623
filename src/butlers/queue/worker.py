"""The worker loop of one queue: claim items, run their handler under a lease, and settle them.

A handler that returns finishes its item; the value is stored as the item's result. It may return a
``FinishWith`` to write something in the transaction that finishes the item. If it raises: a retryable error
means that something else is unavailable, and the item waits for it without using up an attempt; an
unexpected error is retried a few times with a growing delay; a permanent error makes the item a dead letter.
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
from uuid import UUID

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
    SessionInterrupted,
    SessionUnavailable,
)
from butlers.domain.faults import kill_point, shortened
from butlers.domain.json_safe import text_safe
from butlers.queue import leased_queue as queue
from butlers.queue.leased_queue import Lease
from butlers.queue.listener import Listener
from butlers.queue.loops import repeat
from butlers.wire import telemetry

log = structlog.get_logger()

Handler = Callable[[Lease], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class FinishWith:
    """A result, and a write that commits together with it."""

    result: Any
    write: Callable[[Connection], Awaitable[object]]


CLAIM_S = 5.0  # how long a stop waits for a claim that is under way
MEASURE_S = 10.0  # between two measurements of the queue's depth, when telemetry is on
SCAN_S = 5.0  # between two looks without a wake-up, for items whose delay has run out
# A model that is away is asked again less often than a peer: each time a CLI is started for it.
MODEL_PAUSE, LONGEST_ASKED_PAUSE = timedelta(minutes=5), timedelta(hours=1)
INTERRUPTED_PAUSE = timedelta(seconds=20)  # doubled at each attempt
BACKOFF_BASE_S = 0.5
BACKOFF_CAP_S = 60.0


def backoff(attempt: int) -> timedelta:
    """Return an exponential delay with jitter on its upper half, so that retries spread out."""
    ceiling = min(BACKOFF_CAP_S, BACKOFF_BASE_S * 2 ** (attempt - 1))
    return timedelta(seconds=ceiling * random.uniform(0.5, 1.0))


def _scan_pause_s() -> float:
    """Return a pause of about SCAN_S: scans at different times share one connection of the pool."""
    return SCAN_S * random.uniform(0.8, 1.0)


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
        """``streak``: after so many items in a row of one priority, a less urgent item is claimed."""
        self.queue = queue_name
        self._database = database
        self._listener = listener
        self._handler = handler
        self._concurrency = concurrency
        self._lease = shortened(lease)
        self._batch = batch
        self._longest_streak = streak
        # By priority: the number of items in a row that were as urgent or more.
        self._passed_over: dict[int, int] = {}
        self._completions = Completions(database)
        self._running: dict[asyncio.Task[None], Lease] = {}
        self._loops: list[asyncio.Task[None]] = []
        self._wake = asyncio.Event()
        self._claims = 0  # number of claims so far
        self._is_full = False  # the last claim filled all slots, so more items may be due
        # Items whose completion has shown that their end makes no other item due.
        self._followed_by_none: set[UUID] = set()

    def start(self) -> None:
        lease_s = self._lease.total_seconds() / 3
        extending = repeat(
            self._extend_leases, f"extend leases of {self.queue}", every_s=lease_s, first_s=lease_s
        )
        self._loops = [
            asyncio.create_task(self._claim_forever(), name=f"worker:{self.queue}"),
            asyncio.create_task(extending, name=f"leases:{self.queue}"),
        ]
        if telemetry.is_on():
            measuring = repeat(self._measure, f"measure {self.queue}", every_s=MEASURE_S)
            self._loops.append(asyncio.create_task(measuring, name=f"measure:{self.queue}"))

    async def stop(self, grace_s: float) -> None:
        """Stop claiming, let running items end, and release those that do not end in time."""
        claiming, *others = self._loops
        claiming.cancel()
        await asyncio.wait({claiming}, timeout=CLAIM_S)
        if self._running:
            _, late = await asyncio.wait(self._running, timeout=grace_s)
            if late:
                log.warning(
                    "items did not end in time and were released", queue=self.queue, items=len(late)
                )
        await tasks.end(claiming, *others)
        await self._release_running()
        await self._completions.close()

    # -- claiming ----------------------------------------------------------------------------------

    async def _claim_forever(self) -> None:
        with self._listener.wakes(self.queue, self._wake):
            while True:
                self._wake.clear()
                more = False
                try:
                    more = await self._fill()
                except DatabaseUnavailable:
                    await asyncio.sleep(BACKOFF_BASE_S)
                except Exception:  # the loop must go on: nobody else claims from this queue
                    log.exception("could not claim", queue=self.queue)
                if not more:
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._wake.wait(), _scan_pause_s())

    async def _fill(self) -> bool:
        """Start due items in all free slots. Return True when more may be due at once."""
        free = self._concurrency - len(self._running)
        self._is_full = free <= 0
        if free <= 0 or not self._listener.holds_lock:
            return False
        claiming = asyncio.ensure_future(self._claim(free))
        try:
            leases = await asyncio.shield(claiming)
        except asyncio.CancelledError:
            # The claim may still commit; stop() has to know its leases, to release them.
            with contextlib.suppress(Exception):
                self._begin(await claiming)
            raise
        self._begin(leases)
        self._is_full = len(leases) == min(free, self._batch)
        return self._is_full

    async def _claim(self, limit: int) -> list[Lease]:
        self._claims += 1
        limit = min(limit, self._batch)
        claim = partial(queue.claim, queue=self.queue, holder=self._listener.holder)
        async with self._database.transaction() as connection:
            favored: list[Lease] = []
            for priority in self._streaks():
                favored = await claim(connection, limit=1, lease=self._lease, below=priority)
                self._passed_over[priority] = 0  # also where no less urgent item waits
                if favored:
                    break
            rest = limit - len(favored)
            others = await claim(connection, limit=rest, lease=self._lease) if rest else []
            return favored + others

    def _begin(self, leases: list[Lease]) -> None:
        for lease in leases:
            self._count(lease.priority)
            task = asyncio.create_task(self._work(lease))
            self._running[task] = lease
            task.add_done_callback(self._ended)

    def _streaks(self) -> list[int]:
        """Return the priorities whose less urgent items have waited too long, least urgent first."""
        overdue = (
            priority
            for priority, items in self._passed_over.items()
            if items >= self._longest_streak
        )
        return sorted(overdue, reverse=True)

    def _count(self, priority: int) -> None:
        self._passed_over.setdefault(priority, 0)
        for known, items in self._passed_over.items():
            self._passed_over[known] = items + 1 if priority <= known else 0

    # -- working -----------------------------------------------------------------------------------

    def _ended(self, task: asyncio.Task[None]) -> None:
        lease = self._running.pop(task)
        if self._is_full or lease.item_id not in self._followed_by_none:
            self._wake.set()
        self._followed_by_none.discard(lease.item_id)
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
            if isinstance(result, FinishWith):
                await self._settle(_finish, lease, result)
            else:
                await self._complete(lease, result)
            kill_point(f"{self.queue}.completed")
        except Postponed as error:
            self._log(lease).info("item postponed", why=str(error), until=error.until.isoformat())
            why = text_safe(str(error))
            await self._settle(queue.postpone, lease, why, error.until, error.aside)
            pause_s = (error.until - datetime.now(UTC)).total_seconds()
            if pause_s < SCAN_S:
                self._wake_in(max(pause_s, 0))
        except EarlierMessageWaits as error:
            # No pause: its lane holds it back, and the end of the item before it wakes this worker.
            await self._settle(queue.release, lease, text_safe(str(error)))
        except ButlersError as error:
            span.fail(str(error))
            self._log(lease).warning("item failed", error=str(error), retryable=error.retryable)
            if isinstance(error, SessionInterrupted):
                pause = shortened(INTERRUPTED_PAUSE) * 2 ** (lease.attempt - 1)
                await self._retry(lease, str(error), pause)
            elif error.retryable:
                await self._wait(lease, error)
            else:
                await self._settle(queue.dead_letter, lease, text_safe(str(error)), point="bury")
        except asyncio.CancelledError:
            if (task := asyncio.current_task()) and task.cancelling():
                raise
            await self._retry(lease, "the work that it waited for was canceled")
        except Exception as error:  # one bad item must not stop the queue
            span.fail(f"{type(error).__name__}: {error}")
            logger = self._log(lease)
            logger.exception("item crashed")
            await self._retry(lease, f"{type(error).__name__}: {error}")

    async def _complete(self, lease: Lease, result: Any) -> None:
        """Complete an item, and note if that makes no other item due: then no claim is needed.

        A claim that ran meanwhile may have passed over an item of the same lane that came in meanwhile too.
        """
        claims = self._claims
        followed = await self._completions.complete(lease, result)
        if not followed and claims == self._claims:
            self._followed_by_none.add(lease.item_id)

    def _log(self, lease: Lease) -> Any:
        return log.bind(queue=self.queue, item=lease.key, attempt=lease.attempt)

    async def _wait(self, lease: Lease, error: ButlersError) -> None:
        shortest, longest = queue.SHORTEST_PAUSE, shortened(queue.LONGEST_PAUSE)
        if isinstance(error, SessionUnavailable):
            longest = shortened(MODEL_PAUSE)
        if isinstance(error, RateLimited):
            # The jitter goes both ways; the pause that the model asked for is the minimum.
            asked = timedelta(seconds=error.after_s or 0) / 0.75
            shortest = max(shortest, min(asked, LONGEST_ASKED_PAUSE))
        elif isinstance(error, DatabaseUnavailable):
            longest = shortest  # the database is back when this is written
        await self._settle(queue.wait, lease, text_safe(str(error)), shortest, longest)
        self._wake_in(queue.SHORTEST_PAUSE.total_seconds() * 1.3)  # the first pauses are short

    async def _retry(self, lease: Lease, error: str, pause: timedelta | None = None) -> None:
        delay = backoff(lease.attempt) if pause is None else pause
        await self._settle(queue.retry, lease, text_safe(error), delay)
        self._wake_in(delay.total_seconds())

    def _wake_in(self, seconds: float) -> None:
        """Look for due items then. Nothing is notified when a delay runs out, and a scan may be later."""
        asyncio.get_running_loop().call_later(seconds, self._wake.set)

    async def _settle(
        self,
        settle: Callable[..., Awaitable[None]],
        *arguments: Any,
        patient: bool = True,
        point: str | None = None,
    ) -> None:
        """Write an item's outcome. If ``patient``, keep trying while the database is unavailable: the item
        stays leased, until LeaseLost says that another worker took it over."""
        waited, kill_at = False, f"{self.queue}.{point or settle.__name__}"
        while True:
            try:
                async with self._database.transaction() as connection:
                    await settle(connection, *arguments)
                    kill_point(f"{kill_at}.before_commit")
                kill_point(f"{kill_at}.committed")
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

    # -- leases ------------------------------------------------------------------------------------

    async def _extend_leases(self) -> None:
        held = dict(self._running)
        if not held:
            return
        async with self._database.transaction() as connection:
            current = await queue.extend(connection, list(held.values()), self._lease)
        for task, lease in held.items():
            if lease.item_id not in current and not task.done():
                log.warning("lease lost while working", queue=self.queue, item=lease.key)
                task.cancel()

    async def _measure(self) -> None:
        async with self._database.transaction() as connection:
            depths = await queue.depths(connection)
        telemetry.measure_queue(self.queue, depths.get(self.queue, {}))

    async def _release_running(self) -> None:
        held = dict(self._running)
        for task in held:
            task.cancel()
        await asyncio.gather(*held, return_exceptions=True)
        for task, lease in held.items():
            if task.cancelled():
                await self._settle(queue.release, lease, patient=False)


async def _finish(connection: Connection, lease: Lease, finish: FinishWith) -> None:
    await finish.write(connection)
    await queue.complete(connection, lease, finish.result)


@dataclass(frozen=True, slots=True)
class _Completion:
    lease: Lease
    result: Any
    written: asyncio.Future[bool]


class Completions:
    """Group commit: completions that arrive while one transaction is written share the next one."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._waiting: list[_Completion] = []
        self._writing: asyncio.Task[None] | None = None

    async def complete(self, lease: Lease, result: Any) -> bool:
        """Return when the completion is committed, or refused because another worker has the item.

        True: another item of its lane may be due now.

        While the database is unavailable it keeps trying: the item stays leased until then.
        """
        completion = _Completion(lease, result, asyncio.get_running_loop().create_future())
        self._waiting.append(completion)
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write())
        return await completion.written

    async def close(self) -> None:
        if self._writing is not None:
            await tasks.end(self._writing)

    async def _write(self) -> None:
        while self._waiting:
            group = [one for one in self._waiting if not one.written.cancelled()]
            self._waiting.clear()
            if group:
                await self._write_group(group)

    async def _write_group(self, group: list[_Completion]) -> None:
        try:
            current = await self._commit(group)
        except Exception as error:  # noqa: BLE001  (handed to the caller that waits for it)
            if len(group) > 1:  # one of them cannot be stored; the others can
                for completion in group:
                    await self._write_group([completion])
            elif not group[0].written.done():
                group[0].written.set_exception(error)
            return
        for completion in group:
            lease = completion.lease
            if lease.item_id not in current:
                log.warning("late work refused", queue=lease.queue, item=lease.key)
            if not completion.written.done():
                completion.written.set_result(current.get(lease.item_id, True))

    async def _commit(self, group: list[_Completion]) -> dict[UUID, bool]:
        warned = False
        while True:
            try:
                async with self._database.transaction() as connection:
                    done = [(one.lease, one.result) for one in group]
                    return await queue.complete_all(connection, done)
            except DatabaseUnavailable:
                if not warned:
                    log.warning("could not settle items yet", items=len(group))
                warned = True
                await asyncio.sleep(BACKOFF_BASE_S)
