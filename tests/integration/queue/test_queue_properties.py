"""Any interleaving of claim, crash, lease expiry, late completion and retry ends each item once.

Hypothesis plays three workers against a real database. A small model says what each step must answer;
a trigger in the database writes down what really happened (``queue_history``).
"""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

import asyncpg
import pytest
from asyncpg.transaction import Transaction
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from butlers.db.database import Database, Login, connect
from butlers.domain.errors import LeaseLost
from butlers.queue import leased_queue as queue
from butlers.queue.leased_queue import Lease
from support import queue_history
from support.properties import examples
from support.waiting import until

T = TypeVar("T")
AsyncConnection = asyncpg.Connection

QUEUE = "work"
LONG = timedelta(hours=1)  # no lease or delay of the model runs out by itself
WORKERS = 3
ANYONE = st.integers(0, WORKERS - 1)
WHICH = st.integers(0, 11)  # of those that there are
PRIORITIES = st.integers(0, 2)
ATTEMPTS = st.integers(1, 4)


def choose(among: list[T], which: int) -> T:
    return among[which % len(among)]


@dataclass
class Item:
    """Expected state of an item."""

    priority: int
    max_attempts: int
    state: str = "ready"
    attempts: int = 0
    fence: int = 0
    due: bool = True
    holder: int | None = None
    expired: bool = False


@dataclass
class Held:
    """A lease in a worker's hands; it need not be the current one any more."""

    lease: Lease
    acted: bool = False


@dataclass
class Worker:
    number: int
    work: AsyncConnection
    life: AsyncConnection
    holder: int
    alive: bool = True  # the server sees its lock
    held: list[Held] = field(default_factory=list)
    open: tuple[Held, Transaction] | None = None  # an effect that is not committed yet


class World:
    """One event loop, one database and its connections, for all examples."""

    def __init__(self, login: Login) -> None:
        self.login = login
        self.runner = asyncio.Runner()
        self.admin = self.run(connect(login, "tests:admin"))
        self.workers = [self.run(self._hire(number)) for number in range(WORKERS)]
        self.run(queue_history.prepare(self.admin))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    async def _hire(self, number: int) -> Worker:
        work = await connect(self.login, f"tests:work:{number}")
        worker = Worker(number, work, work, 0)
        await self._revive(worker)
        return worker

    async def _revive(self, worker: Worker) -> None:
        """A new process takes the place of the dead one, under a number of its own."""
        worker.life = await connect(self.login, f"tests:life:{worker.number}")
        worker.holder, worker.alive = secrets.randbits(62), True
        await queue_history.vouch(worker.life, worker.holder)

    async def cut_off(self, worker: Worker) -> None:
        """The server takes the worker for dead; the worker itself may not know."""
        await worker.life.close()
        worker.alive = False

        async def gone() -> bool:
            return not await queue_history.is_locked(self.admin, worker.holder)

        await until("the server to drop the lock", gone)

    async def crash(self, worker: Worker) -> None:
        if worker.open:
            await worker.open[1].rollback()
        worker.open, worker.held = None, []
        if worker.alive:
            await self.cut_off(worker)
        await self._revive(worker)

    async def reset(self) -> None:
        for worker in self.workers:
            if worker.open:
                await worker.open[1].rollback()
            worker.open, worker.held = None, []
            if not worker.alive:
                await self._revive(worker)
        await queue_history.clear(self.admin)

    async def close(self) -> None:
        for worker in self.workers:
            await worker.work.close()
            await worker.life.close()
        await self.admin.close()


class QueueMachine(RuleBasedStateMachine):
    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self.items: dict[str, Item] = {}
        self.effects: dict[str, str] = {}  # key -> the worker whose effect it is
        self.completions: dict[str, int] = {}
        world.run(world.reset())

    # -- what the model knows ------------------------------------------------------------------

    def is_current(self, lease: Lease) -> bool:
        item = self.items[lease.key]
        return item.state == "leased" and item.fence == lease.fence

    def is_lost(self, item: Item) -> bool:
        living = {worker.holder for worker in self.world.workers if worker.alive}
        return item.state == "leased" and (item.expired or item.holder not in living)

    def keys(self, state: str, *, due: bool | None = None) -> list[str]:
        return [
            key
            for key, item in self.items.items()
            if item.state == state and due in (None, item.due)
        ]

    def in_hand(self) -> list[tuple[Worker, Held]]:
        """Return all leases, current and lost."""
        return [(w, held) for w in self.world.workers if w.open is None for held in w.held]

    def workable(self) -> list[tuple[Worker, Held]]:
        """Return the leases without an uncommitted effect, on which a second one would wait."""
        busy = {w.open[0].lease.key for w in self.world.workers if w.open}
        return [(w, held) for w, held in self.in_hand() if held.lease.key not in busy]

    # -- steps ---------------------------------------------------------------------------------

    @initialize(items=st.lists(st.tuples(PRIORITIES, ATTEMPTS), min_size=1, max_size=3))
    def begin(self, items: list[tuple[int, int]]) -> None:
        for key, (priority, max_attempts) in zip("abc", items, strict=False):
            self.enqueue(key, priority, max_attempts, True)

    @rule(key=st.sampled_from("abcde"), priority=PRIORITIES, attempts=ATTEMPTS, due=st.booleans())
    def enqueue(self, key: str, priority: int, attempts: int, due: bool) -> None:
        added = self.world.run(
            queue.enqueue(
                self.world.admin,
                QUEUE,
                key,
                {"key": key},
                priority=priority,
                delay=timedelta(0) if due else LONG,
                max_attempts=attempts,
            )
        )
        assert added == (key not in self.items)
        self.items.setdefault(key, Item(priority, attempts, due=due))

    @rule(number=ANYONE, limit=st.integers(1, 3))
    def claim(self, number: int, limit: int) -> None:
        worker = self.world.workers[number]
        if worker.open is not None:
            return
        leases = self.world.run(
            queue.claim(worker.work, QUEUE, worker.holder, limit=limit, lease=LONG)
        )
        ready = [self.items[key] for key in self.keys("ready", due=True)]
        assert len(leases) == min(limit, len(ready))
        priorities = [self.items[lease.key].priority for lease in leases]
        assert priorities == sorted(item.priority for item in ready)[: len(leases)]
        for lease in leases:
            item = self.items[lease.key]
            assert item.state == "ready"
            item.state, item.holder, item.expired = "leased", worker.holder, False
            item.attempts, item.fence = item.attempts + 1, item.fence + 1
            assert (lease.attempt, lease.fence) == (item.attempts, item.fence)
            worker.held.append(Held(lease))

    @precondition(lambda self: self.workable())
    @rule(which=WHICH, finish=st.booleans())
    def work(self, which: int, finish: bool) -> None:
        """The effect in one transaction, with the item's completion or without it."""
        worker, held = choose(self.workable(), which)
        self.world.run(self._begin_effect(worker, held))
        self.world.run(self._end_effect(worker, finish))

    @precondition(lambda self: self.workable())
    @rule(which=WHICH)
    def begin_effect(self, which: int) -> None:
        self.world.run(self._begin_effect(*choose(self.workable(), which)))

    @precondition(lambda self: any(worker.open for worker in self.world.workers))
    @rule(which=WHICH, finish=st.booleans())
    def end_effect(self, which: int, finish: bool) -> None:
        worker = choose([worker for worker in self.world.workers if worker.open], which)
        self.world.run(self._end_effect(worker, finish))

    @precondition(lambda self: any(held.acted for _, held in self.in_hand()))
    @rule(which=WHICH)
    def complete_later(self, which: int) -> None:
        """In a transaction after the effect's; by a worker that may have been overtaken."""
        worker, held = choose([pair for pair in self.in_hand() if pair[1].acted], which)
        if self._settles(worker, held, queue.complete(worker.work, held.lease)):
            self._completed(held.lease)

    @precondition(lambda self: self.in_hand())
    @rule(which=WHICH, due=st.booleans())
    def retry(self, which: int, due: bool) -> None:
        worker, held = choose(self.in_hand(), which)
        delay = timedelta(0) if due else LONG
        if self._settles(worker, held, queue.retry(worker.work, held.lease, "try again", delay)):
            item = self.items[held.lease.key]
            last = item.attempts >= item.max_attempts
            item.state, item.due = ("dead", item.due) if last else ("ready", due)

    @precondition(lambda self: self.in_hand())
    @rule(which=WHICH)
    def release(self, which: int) -> None:
        worker, held = choose(self.in_hand(), which)
        if self._settles(worker, held, queue.release(worker.work, held.lease)):
            item = self.items[held.lease.key]
            item.state, item.attempts = "ready", item.attempts - 1

    @precondition(lambda self: self.in_hand())
    @rule(which=WHICH)
    def bury(self, which: int) -> None:
        worker, held = choose(self.in_hand(), which)
        if self._settles(worker, held, queue.dead_letter(worker.work, held.lease, "never")):
            self.items[held.lease.key].state = "dead"

    @precondition(lambda self: self.in_hand())
    @rule(which=WHICH)
    def extend(self, which: int) -> None:
        worker, _ = choose(self.in_hand(), which)
        leases = [held.lease for held in worker.held]
        ours = self.world.run(queue.extend(worker.work, leases, LONG))
        current = [lease for lease in leases if self.is_current(lease)]
        assert ours == {lease.item_id for lease in current}
        for lease in current:
            self.items[lease.key].expired = False

    @precondition(lambda self: self.keys("leased"))
    @rule(which=WHICH)
    def lease_runs_out(self, which: int) -> None:
        key = choose(self.keys("leased"), which)
        statement = "UPDATE queue_items SET lease_until = now() - interval '1 s' WHERE key = $1"
        self.world.run(self.world.admin.execute(statement, key))
        self.items[key].expired = True

    @precondition(lambda self: self.keys("leased"))
    @rule(which=WHICH, number=ANYONE)
    def is_overtaken(self, which: int, number: int) -> None:
        """The straight road to a zombie: its lease ends, and another claims the item."""
        self.lease_runs_out(which)
        self.recover()
        self.claim(number, 3)

    @precondition(lambda self: self.keys("ready", due=False))
    @rule(which=WHICH)
    def delay_runs_out(self, which: int) -> None:
        key = choose(self.keys("ready", due=False), which)
        statement = "UPDATE queue_items SET run_after = now() WHERE key = $1"
        self.world.run(self.world.admin.execute(statement, key))
        self.items[key].due = True

    @rule(number=ANYONE)
    def crash(self, number: int) -> None:
        """At any point: with leases, in the middle of an effect, between it and the completion."""
        self.world.run(self.world.crash(self.world.workers[number]))

    @precondition(lambda self: any(w.alive and w.held for w in self.world.workers))
    @rule(which=WHICH)
    def is_cut_off(self, which: int) -> None:
        """The server takes it for dead, and it still has its leases in hand."""
        self.world.run(
            self.world.cut_off(choose([w for w in self.world.workers if w.alive and w.held], which))
        )

    @rule()
    def recover(self) -> None:
        lost = [item for item in self.items.values() if self.is_lost(item)]
        assert self.world.run(queue.recover(self.world.admin)) == len(lost)
        for item in lost:
            item.state = "dead" if item.attempts >= item.max_attempts else "ready"
            item.due = True

    # -- what must hold ------------------------------------------------------------------------

    @invariant()
    def the_database_agrees_with_the_model(self) -> None:
        rows = self.world.run(self.world.admin.fetch("SELECT * FROM queue_items"))
        found = {row["key"]: (row["state"], row["attempts"], row["fence"]) for row in rows}
        assert found == {k: (i.state, i.attempts, i.fence) for k, i in self.items.items()}
        effects = self.world.run(self.world.admin.fetch("SELECT key, worker FROM effects"))
        assert sorted(map(tuple, effects)) == sorted(self.effects.items())

    def teardown(self) -> None:
        self.world.run(self._drain())
        assert set(self.completions.values()) <= {1}

    # -- how the steps are done ------------------------------------------------------------------

    async def _begin_effect(self, worker: Worker, held: Held) -> None:
        transaction = worker.work.transaction()
        await transaction.start()
        worker.open = held, transaction
        mine = {"by": str(worker.number)}
        first = {"by": self.effects[held.lease.key]} if held.lease.key in self.effects else mine
        answer = await queue_history.act(worker.work, held.lease.key, str(worker.number))
        assert answer == first, "a call that happened must answer what it answered then"

    async def _end_effect(self, worker: Worker, finish: bool) -> None:
        assert worker.open
        held, transaction = worker.open
        lease, worker.open = held.lease, None
        if finish:
            try:
                await queue.complete(worker.work, lease, {"by": worker.number})
            except LeaseLost:
                await transaction.rollback()
                assert not self.is_current(lease)
                worker.held.remove(held)
                return
            assert self.is_current(lease), "a late completion was taken"
        await transaction.commit()
        self.effects.setdefault(lease.key, str(worker.number))
        held.acted = True
        if finish:
            worker.held.remove(held)
            self._completed(lease)

    def _settles(self, worker: Worker, held: Held, settling: Coroutine[Any, Any, None]) -> bool:
        """Return whether the call was accepted, which must be so only for the current lease."""
        current = self.is_current(held.lease)
        worker.held.remove(held)
        try:
            self.world.run(settling)
        except LeaseLost:
            assert not current, "the holder of the current lease was refused"
            return False
        assert current, "a worker that was overtaken was taken seriously"
        return True

    def _completed(self, lease: Lease) -> None:
        self.items[lease.key].state = "done"
        self.completions[lease.key] = self.completions.get(lease.key, 0) + 1

    async def _drain(self) -> None:
        """Everybody dies; one healthy worker finds the database as it is."""
        world = self.world
        for worker in world.workers:
            await world.crash(worker)
        await queue.recover(world.admin)
        await world.admin.execute("UPDATE queue_items SET run_after = now() WHERE state = 'ready'")
        healthy = world.workers[0]
        while leases := await queue.claim(healthy.work, QUEUE, healthy.holder, limit=2):
            for lease in leases:
                async with healthy.work.transaction():
                    await queue_history.act(healthy.work, lease.key, "healthy")
                    await queue.complete(healthy.work, lease)
                self._completed(lease)
        await queue_history.assert_each_ended_once(world.admin)


@pytest.mark.hypothesis  # also with the deep profile of make soak
@pytest.mark.timeout(600)  # shrinking a failure takes its time
def test_any_interleaving_ends_each_item_once(login: Login) -> None:
    world = World(login)
    try:
        run_state_machine_as_test(
            lambda: QueueMachine(world),
            settings=settings(
                max_examples=examples(60),
                stateful_step_count=40,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
    finally:
        world.run(world.close())
        world.runner.close()


# -- really at once ----------------------------------------------------------------------------------

ITEMS = 300
CREW = 4


@asynccontextmanager
async def process(login: Login, name: str) -> AsyncIterator[tuple[AsyncConnection, int]]:
    """A daemon as the queue sees it: a connection, and a lock on its holder number."""
    work, life = await connect(login, name), await connect(login, name)
    holder = secrets.randbits(62)
    try:
        await queue_history.vouch(life, holder)
        yield work, holder
    finally:
        work.terminate()
        life.terminate()


async def labour(login: Login, name: str, luck: random.Random) -> None:
    """Work until there is nothing left; be cancelled anywhere in it."""
    async with process(login, name) as (connection, holder):
        while await connection.fetchval(
            "SELECT EXISTS (SELECT FROM queue_items WHERE state <> 'done')"
        ):
            leases = await queue.claim(connection, QUEUE, holder, limit=luck.randint(1, 5))
            for lease in leases:
                with suppress(LeaseLost):
                    await finish_one(connection, lease, name, luck)
            if not leases:
                await asyncio.sleep(0.005)


async def finish_one(
    connection: AsyncConnection, lease: Lease, name: str, luck: random.Random
) -> None:
    together = luck.random() < 0.5
    async with connection.transaction():
        answer = await queue_history.act(connection, lease.key, name)
        await asyncio.sleep(luck.choice((0, 0, 0.002)))
        if together:
            await queue.complete(connection, lease, answer)
    if not together:
        await asyncio.sleep(luck.choice((0, 0, 0.002)))
        await queue.complete(connection, lease, answer)


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_workers_that_are_cancelled_anywhere_do_everything_once(
    recorded_database: Database, login: Login, seed: int
) -> None:
    luck = random.Random(seed)
    async with recorded_database.transaction() as connection:
        for number in range(ITEMS):
            await queue.enqueue(
                connection, QUEUE, f"item-{number}", {}, priority=number % 3, max_attempts=10_000
            )
    crew = [asyncio.create_task(labour(login, f"w{n}", luck)) for n in range(CREW)]
    kills = 0
    try:
        while not all(task.done() for task in crew):
            await asyncio.sleep(luck.uniform(0.005, 0.03))
            async with recorded_database.transaction() as connection:
                await queue.recover(connection)
            victim = luck.randrange(CREW)
            if kills < 60 and not crew[victim].done():
                kills += 1
                crew[victim].cancel()
                await asyncio.wait({crew[victim]})
                crew[victim] = asyncio.create_task(labour(login, f"w{victim}-{kills}", luck))
        await asyncio.gather(*crew)
    finally:
        for task in crew:
            task.cancel()
    async with recorded_database.transaction() as connection:
        await queue_history.assert_each_ended_once(connection)
        assert await connection.fetchval("SELECT count(*) FROM effects") == ITEMS
        done = "SELECT count(*) FROM history WHERE became = 'done'"
        assert await connection.fetchval(done) == ITEMS
    assert kills > 0
