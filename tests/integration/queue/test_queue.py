"""The leased queue by example, on a real database."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest

from butlers.db.database import Database, Login, connect
from butlers.domain.errors import LeaseLost
from butlers.queue import leased_queue as queue
from support import queue_history
from support.waiting import until

ME = 1
LATER = timedelta(hours=1)


@pytest.fixture
async def conn(login: Login) -> AsyncIterator[asyncpg.Connection]:
    connection = await connect(login, "tests:conn")
    yield connection
    await connection.close()


@pytest.fixture
async def other(login: Login) -> AsyncIterator[asyncpg.Connection]:
    connection = await connect(login, "tests:other")
    yield connection
    await connection.close()


async def row(connection: asyncpg.Connection, key: str) -> asyncpg.Record:
    return await connection.fetchrow("SELECT * FROM queue_items WHERE key = $1", key)


async def take(connection: asyncpg.Connection, name: str = "q", holder: int = ME) -> queue.Lease:
    [lease] = await queue.claim(connection, name, holder)
    return lease


# -- order -----------------------------------------------------------------------------------------


async def test_the_most_urgent_first_and_within_that_the_oldest(conn: asyncpg.Connection) -> None:
    for key, priority in (("c1", 2), ("b1", 1), ("a1", 0), ("b2", 1), ("a2", 0), ("c2", 2)):
        await queue.enqueue(conn, "q", key, {}, priority=priority)
    taken = [(await take(conn)).key for _ in range(6)]
    assert taken == ["a1", "a2", "b1", "b2", "c1", "c2"]


async def test_a_batch_comes_in_the_same_order(conn: asyncpg.Connection) -> None:
    for key, priority in (("c", 2), ("b", 1), ("a", 0)):
        await queue.enqueue(conn, "q", key, {}, priority=priority)
    assert [lease.key for lease in await queue.claim(conn, "q", ME, limit=9)] == ["a", "b", "c"]


async def test_items_of_one_transaction_keep_their_order(conn: asyncpg.Connection) -> None:
    keys = [f"{number:02}" for number in range(30)]
    async with conn.transaction():
        for key in keys:
            await queue.enqueue(conn, "q", key, {})
    assert [(await take(conn)).key for _ in keys] == keys


async def test_queues_do_not_mix(conn: asyncpg.Connection) -> None:
    assert await queue.enqueue(conn, "one", "k", {"n": 1})
    assert await queue.enqueue(conn, "two", "k", {"n": 2})
    assert (await take(conn, "two")).payload == {"n": 2}
    assert await queue.claim(conn, "two", ME) == []
    assert (await take(conn, "one")).payload == {"n": 1}


async def test_key_is_accepted_once(conn: asyncpg.Connection) -> None:
    assert await queue.enqueue(conn, "q", "k", {"n": 1})
    assert not await queue.enqueue(conn, "q", "k", {"n": 2})
    lease = await take(conn)
    assert lease.payload == {"n": 1}
    assert not await queue.enqueue(conn, "q", "k", {"n": 3})
    await queue.complete(conn, lease, {"ok": True})
    assert not await queue.enqueue(conn, "q", "k", {"n": 4})
    assert await queue.claim(conn, "q", ME) == []
    assert (await row(conn, "k"))["result"] == {"ok": True}


# -- lanes -----------------------------------------------------------------------------------------


async def keys(connection: asyncpg.Connection, limit: int = 9) -> list[str]:
    return [lease.key for lease in await queue.claim(connection, "q", ME, limit=limit)]


async def test_lane_runs_one_item_at_a_time_in_order(conn: asyncpg.Connection) -> None:
    for key, lane in (("a1", "a"), ("a2", "a"), ("b1", "b"), ("free", None), ("a3", "a")):
        await queue.enqueue(conn, "q", key, {}, lane=lane)
    first, *others = await queue.claim(conn, "q", ME, limit=9)
    assert [first.key, *(lease.key for lease in others)] == ["a1", "b1", "free"]
    assert await keys(conn) == []
    await queue.complete(conn, first)
    assert await keys(conn) == ["a2"]


async def test_urgency_does_not_overtake_in_a_lane(conn: asyncpg.Connection) -> None:
    await queue.enqueue(conn, "q", "first", {}, priority=2, lane="a")
    await queue.enqueue(conn, "q", "urgent", {}, priority=0, lane="a")
    assert await keys(conn) == ["first"]


async def test_waiting_item_keeps_its_place_in_the_lane(conn: asyncpg.Connection) -> None:
    for key in ("first", "second"):
        await queue.enqueue(conn, "q", key, {}, lane="a")
    await queue.wait(conn, await take(conn), "they are away")
    assert await keys(conn) == []
    await queue.make_due(conn, "q")
    assert await keys(conn) == ["first"]


async def test_waiting_item_delays_only_its_own_lane(
    conn: asyncpg.Connection,
) -> None:
    for key, lane in (("first", "a"), ("second", "a"), ("other", "b"), ("free", None)):
        await queue.enqueue(conn, "q", key, {}, lane=lane)
    await queue.wait(conn, await take(conn), "they are away", LATER, LATER)
    due = "SELECT key FROM queue_items WHERE run_after <= now() ORDER BY id"
    assert [found["key"] for found in await conn.fetch(due)] == ["other", "free"]
    assert (await row(conn, "second"))["error"] == "an earlier one waits"
    await queue.make_due(conn, "q")
    assert sorted(await keys(conn)) == ["first", "free", "other"]
    await conn.execute("UPDATE queue_items SET state = 'done' WHERE state = 'leased'")
    assert await keys(conn) == ["second"]


async def test_failed_item_steps_aside_until_it_is_due(
    conn: asyncpg.Connection,
) -> None:
    for key in ("poison", "second", "third"):
        await queue.enqueue(conn, "q", key, {}, lane="a")
    await queue.retry(conn, await take(conn), "it crashed", LATER)
    second = await take(conn)
    assert second.key == "second"
    await conn.execute("UPDATE queue_items SET run_after = now() WHERE key = 'poison'")
    await queue.complete(conn, second)
    assert await keys(conn) == ["poison"]


async def test_postponed_item_steps_aside_until_it_is_due(
    conn: asyncpg.Connection,
) -> None:
    for key in ("first", "second", "third"):
        await queue.enqueue(conn, "q", key, {}, lane="a")
    await queue.postpone(conn, await take(conn), "no budget", datetime.now(UTC) + LATER)
    second = await take(conn)
    assert second.key == "second"
    await queue.complete(conn, second)
    await queue.make_due(conn, "q")
    assert await keys(conn) == ["first"]


async def test_lane_order_survives_a_crash(conn: asyncpg.Connection) -> None:
    for key in ("first", "second"):
        await queue.enqueue(conn, "q", key, {}, lane="a")
    assert (await take(conn)).key == "first"
    assert await queue.recover(conn) == 1  # no lock is held on this test's holder number
    assert await keys(conn) == ["first"]


async def test_lane_order_survives_a_crash_and_a_wait(conn: asyncpg.Connection) -> None:
    for key in ("first", "second"):
        await queue.enqueue(conn, "q", key, {}, lane="a")
    await take(conn)
    assert await queue.recover(conn) == 1
    await queue.wait(conn, await take(conn), "they are away")
    assert await keys(conn) == [], "the crash was no failure of its own"
    await queue.make_due(conn, "q")
    assert await keys(conn) == ["first"]


async def test_two_claimers_at_once_do_not_share_a_lane(
    conn: asyncpg.Connection, other: asyncpg.Connection
) -> None:
    for key in ("first", "second"):
        await queue.enqueue(conn, "q", key, {}, lane="a")
    async with conn.transaction():
        assert await keys(conn) == ["first"]
        assert await keys(other) == [], "the first is taken, if not committed yet"
    assert await keys(other) == []


async def test_changing_the_lane_reports_an_earlier_item(conn: asyncpg.Connection) -> None:
    await queue.enqueue(conn, "q", "first", {}, lane="a")
    await queue.enqueue(conn, "q", "second", {}, lane="b")
    first, second = await queue.claim(conn, "q", ME, limit=2)
    assert not await queue.change_lane(conn, first, "a:x")
    assert await queue.change_lane(conn, second, "a:x")
    await queue.complete(conn, first)
    assert not await queue.change_lane(conn, second, "a:x")


async def test_released_item_runs_when_the_earlier_one_ends(
    conn: asyncpg.Connection,
) -> None:
    for key, lane in (("first", "a"), ("second", "b")):
        await queue.enqueue(conn, "q", key, {}, lane=lane)
    first, second = await queue.claim(conn, "q", ME, limit=2)
    await queue.change_lane(conn, first, "a:x")
    await queue.change_lane(conn, second, "a:x")
    await queue.release(conn, second, "an earlier one waits")
    assert await keys(conn) == []
    assert not await queue.is_full(conn, "q", 1), "it waits for another item"
    await queue.complete(conn, first)
    again = await take(conn)
    assert (again.key, again.attempt) == ("second", 1)


# -- several at once ---------------------------------------------------------------------------------


async def test_two_claimers_never_get_the_same(
    conn: asyncpg.Connection, other: asyncpg.Connection
) -> None:
    for number in range(4):
        await queue.enqueue(conn, "q", str(number), {})
    async with conn.transaction():
        mine = await queue.claim(conn, "q", 1, limit=2)
        # Neither waits for the other's transaction, nor sees its items.
        theirs = await queue.claim(other, "q", 2, limit=4)
    assert [lease.key for lease in mine] == ["0", "1"]
    assert [lease.key for lease in theirs] == ["2", "3"]


async def test_rolled_back_claim_has_no_effect(
    conn: asyncpg.Connection, other: asyncpg.Connection
) -> None:
    await queue.enqueue(conn, "q", "k", {})
    transaction = conn.transaction()
    await transaction.start()
    await take(conn)
    await transaction.rollback()
    assert (await take(other)).attempt == 1


# -- time ------------------------------------------------------------------------------------------


async def test_a_delayed_item_waits(conn: asyncpg.Connection) -> None:
    await queue.enqueue(conn, "q", "later", {}, delay=LATER)
    await queue.enqueue(conn, "q", "now", {})
    assert [lease.key for lease in await queue.claim(conn, "q", ME, limit=9)] == ["now"]
    await conn.execute("UPDATE queue_items SET run_after = now() WHERE key = 'later'")
    assert (await take(conn)).key == "later"


async def test_retried_item_is_due_later_and_keeps_its_error(
    conn: asyncpg.Connection,
) -> None:
    await queue.enqueue(conn, "q", "k", {})
    await queue.retry(conn, await take(conn), "no answer", LATER)
    assert await queue.claim(conn, "q", ME) == []
    found = await row(conn, "k")
    assert (found["state"], found["attempts"], found["error"]) == ("ready", 1, "no answer")
    await conn.execute("UPDATE queue_items SET run_after = now()")
    again = await take(conn)
    assert (again.attempt, again.fence) == (2, 2)
    await queue.complete(conn, again)
    assert (await row(conn, "k"))["error"] is None


async def test_the_last_attempt_is_not_retried(conn: asyncpg.Connection) -> None:
    await queue.enqueue(conn, "q", "k", {}, max_attempts=2)
    await queue.retry(conn, await take(conn), "once", timedelta(0))
    await queue.retry(conn, await take(conn), "twice", timedelta(0))
    found = await row(conn, "k")
    assert (found["state"], found["attempts"], found["error"]) == ("dead", 2, "twice")
    assert found["finished_at"] is not None


async def test_a_planned_restart_is_not_an_attempt_and_loses_no_place(
    conn: asyncpg.Connection,
) -> None:
    await queue.enqueue(conn, "q", "first", {}, max_attempts=1)
    await queue.enqueue(conn, "q", "second", {})
    for _ in range(5):
        lease = await take(conn)
        assert (lease.key, lease.attempt) == ("first", 1)
        await queue.release(conn, lease)
    assert (await row(conn, "first"))["attempts"] == 0


# -- who is late -------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["complete", "retry", "bury", "release"])
async def test_worker_with_a_lost_lease_is_refused_and_rolled_back(
    recorded_database: Database, how: str
) -> None:
    async with recorded_database.transaction() as connection:
        await queue.enqueue(connection, "q", "k", {})
        zombie = await take(connection)
        await connection.execute("UPDATE queue_items SET lease_until = now() - interval '1 s'")
        assert await queue.recover(connection) == 1
        current = await take(connection, holder=2)
    settle = {
        "complete": lambda c: queue.complete(c, zombie),
        "retry": lambda c: queue.retry(c, zombie, "late", LATER),
        "bury": lambda c: queue.dead_letter(c, zombie, "late"),
        "release": lambda c: queue.release(c, zombie),
    }[how]

    async def act_late() -> None:
        async with recorded_database.transaction() as connection:
            await connection.execute("INSERT INTO effects VALUES ('k', 'zombie')")
            await settle(connection)

    with pytest.raises(LeaseLost):
        await act_late()
    async with recorded_database.transaction() as connection:
        assert await connection.fetchval("SELECT count(*) FROM effects") == 0
        assert await queue.extend(connection, [zombie]) == set()
        assert await queue.extend(connection, [zombie, current]) == {current.item_id}
        await queue.complete(connection, current)
    with pytest.raises(LeaseLost):
        async with recorded_database.transaction() as connection:
            await queue.complete(connection, current)


# -- recovery ----------------------------------------------------------------------------------------


async def test_a_dead_holders_items_come_back_without_waiting_for_the_lease(
    conn: asyncpg.Connection, login: Login
) -> None:
    holder = secrets.randbits(62)
    life = await connect(login, "tests:life")
    await queue_history.vouch(life, holder)
    await queue.enqueue(conn, "q", "k", {})
    [lease] = await queue.claim(conn, "q", holder, lease=LATER)
    assert await queue.recover(conn) == 0, "the holder lives"
    await life.close()

    async def recovered() -> bool:
        return await queue.recover(conn) == 1

    await until("the server to notice the death", recovered)
    found = await row(conn, "k")
    assert (found["state"], found["attempts"], found["holder"]) == ("ready", 1, None)
    assert found["error"] == "the worker died or lost its lease"
    with pytest.raises(LeaseLost):
        await queue.complete(conn, lease)


async def test_recovery_skips_rows_of_a_frozen_transaction(
    conn: asyncpg.Connection, other: asyncpg.Connection
) -> None:
    for key in ("half done", "lost"):
        await queue.enqueue(conn, "q", key, {})
    half_done, _lost = await queue.claim(conn, "q", ME, limit=2)
    async with other.transaction():
        await queue.complete(other, half_done)
        assert await asyncio.wait_for(queue.recover(conn), 30) == 1
    assert (await row(conn, "half done"))["state"] == "done"
    assert (await row(conn, "lost"))["state"] == "ready"


async def test_holder_lock_in_another_database_does_not_count(
    conn: asyncpg.Connection, admin: Login
) -> None:
    holder = secrets.randbits(62)
    elsewhere = await connect(admin, "tests:elsewhere")
    try:
        await queue_history.vouch(elsewhere, holder)
        await queue.enqueue(conn, "q", "k", {})
        await take(conn, holder=holder)
        assert await queue.recover(conn) == 1
    finally:
        await elsewhere.close()


async def test_a_frozen_holders_item_comes_back_when_its_lease_ends(
    conn: asyncpg.Connection, other: asyncpg.Connection
) -> None:
    await queue_history.vouch(other, ME)  # it lives
    await queue.enqueue(conn, "q", "k", {})
    await take(conn)
    assert await queue.recover(conn) == 0
    await conn.execute("UPDATE queue_items SET lease_until = now() - interval '1 s'")
    assert await queue.recover(conn) == 1
    assert (await take(conn, holder=2)).attempt == 2


async def test_item_that_kills_its_workers_becomes_a_dead_letter(
    conn: asyncpg.Connection,
) -> None:
    await queue.enqueue(conn, "q", "poison", {}, max_attempts=3)
    await queue.enqueue(conn, "q", "behind", {})
    for attempt in (1, 2, 3):
        leases = await queue.claim(conn, "q", ME, limit=2)
        assert {lease.key: lease.attempt for lease in leases}["poison"] == attempt
        for lease in leases:
            if lease.key == "behind":
                await queue.complete(conn, lease)
        assert await queue.recover(conn) == 1
    found = await row(conn, "poison")
    assert (found["state"], found["attempts"]) == ("dead", 3)
    assert found["error"] == "the worker died or lost its lease"
    assert found["finished_at"] is not None
    assert (await row(conn, "behind"))["state"] == "done"
    assert await queue.claim(conn, "q", ME) == []


async def test_longest_wait_of_later_items_starts_with_the_first(
    conn: asyncpg.Connection,
) -> None:
    for key in ("first", "second", "third"):
        await queue.enqueue(conn, "q", key, {}, lane="conversation")
    await queue.wait(conn, await take(conn), "they are away")
    assert (await row(conn, "third"))["waits_since"] is not None

    await conn.execute("UPDATE queue_items SET waits_since = waits_since - interval '25 hours'")
    for key in ("first", "second", "third"):
        await conn.execute("UPDATE queue_items SET run_after = now() WHERE state = 'ready'")
        lease = await take(conn)
        assert lease.key == key
        await queue.wait(conn, lease, "they are away")
        assert (await row(conn, key))["state"] == "dead"


async def test_time_without_workers_does_not_count_as_waiting(conn: asyncpg.Connection) -> None:
    keys = ("first", "second", "third")
    for key in keys:
        await queue.enqueue(conn, "q", key, {}, lane="conversation")
    await queue.wait(conn, await take(conn), "they are away")
    await conn.execute(
        "UPDATE queue_items SET waits_since = waits_since - interval '60 hours',"
        " run_after = run_after - interval '60 hours'"
    )  # the machine was off over the weekend
    await queue.wait(conn, await take(conn), "they are not up yet")
    for key in keys:
        await conn.execute("UPDATE queue_items SET run_after = now() WHERE state = 'ready'")
        lease = await take(conn)
        assert lease.key == key
        await queue.wait(conn, lease, "they are not up yet")
        found = await row(conn, key)
        assert found["state"] == "ready"
        assert datetime.now(UTC) - found["waits_since"] < timedelta(hours=1)
        await queue.dead_letter(conn, await retake(conn), "out of the way of the next")


async def retake(conn: asyncpg.Connection) -> queue.Lease:
    await conn.execute("UPDATE queue_items SET run_after = now() WHERE state = 'ready'")
    return await take(conn)


async def test_items_behind_a_postponed_one_do_not_count_as_waiting(
    conn: asyncpg.Connection,
) -> None:
    for key in ("first", "second"):
        await queue.enqueue(conn, "q", key, {}, lane="recipient")
    when = datetime.now(UTC) + LATER
    await queue.postpone(conn, await take(conn), "the line is shut", when, aside=False)
    found = await row(conn, "second")
    assert (found["run_after"], found["waits_since"]) == (when, None)


# -- waking ------------------------------------------------------------------------------------------


async def test_workers_wake_when_the_item_is_committed_and_not_before(
    conn: asyncpg.Connection, other: asyncpg.Connection, login: Login
) -> None:
    heard: asyncio.Queue[str] = asyncio.Queue()
    channel = f"butlers:{login.schema}"
    await other.add_listener(channel, lambda *said: heard.put_nowait(said[3]))
    try:
        async with conn.transaction():
            await queue.enqueue(conn, "q", "k", {})
            await other.execute("SELECT 1")  # what was sent before this would have arrived
            assert heard.empty()
        assert await asyncio.wait_for(heard.get(), queue_history.PATIENCE_S) == "q"
        # A duplicate, and an item that is rolled back, wake no worker.
        await queue.enqueue(conn, "q", "k", {})
        transaction = conn.transaction()
        await transaction.start()
        await queue.enqueue(conn, "q", "never", {})
        await transaction.rollback()
        await queue.release(conn, await take(conn))
        await queue.notify(conn, "end")
        assert await asyncio.wait_for(heard.get(), queue_history.PATIENCE_S) == "q", "the release"
        assert await asyncio.wait_for(heard.get(), queue_history.PATIENCE_S) == "end"
    finally:
        await other.reset()


async def test_recovery_wakes_the_queues_it_found_something_for(
    conn: asyncpg.Connection, other: asyncpg.Connection, login: Login
) -> None:
    heard: asyncio.Queue[str] = asyncio.Queue()
    for name in ("one", "two"):
        await queue.enqueue(conn, name, "k", {})
        await take(conn, name)
    await queue.enqueue(conn, "untouched", "k", {})
    await other.add_listener(f"butlers:{login.schema}", lambda *said: heard.put_nowait(said[3]))
    try:
        assert await queue.recover(conn) == 2
        await queue.notify(conn, "end")
        said = [await asyncio.wait_for(heard.get(), queue_history.PATIENCE_S) for _ in range(3)]
        assert sorted(said[:2]) == ["one", "two"]
        assert said[2] == "end"
    finally:
        await other.reset()


# -- counting ----------------------------------------------------------------------------------------


async def test_depths_count_unfinished_items(conn: asyncpg.Connection) -> None:
    assert await queue.depths(conn) == {}
    for key in ("a", "b", "c", "d"):
        await queue.enqueue(conn, "one", key, {})
    await queue.enqueue(conn, "two", "later", {}, delay=LATER)
    await queue.complete(conn, await take(conn, "one"))
    await queue.dead_letter(conn, await take(conn, "one"), "never")
    await take(conn, "one")
    assert await queue.depths(conn) == {
        "one": {"dead": 1, "leased": 1, "ready": 1},
        "two": {"ready": 1},
    }


async def test_clock_that_is_set_back_delays_nothing(conn: asyncpg.Connection) -> None:
    """The item was queued by a clock two hours ahead; a lease and a wait keep their length."""
    jump = timedelta(hours=2)
    await queue.enqueue(conn, "q", "ahead", {}, delay=jump)
    assert await queue.claim(conn, "q", ME) == []
    assert await queue.shift_times(conn, -jump) == 1
    lease = await take(conn)
    await queue.shift_times(conn, jump)  # the clock is two hours ahead again, and so is the lease
    found = await row(conn, "ahead")
    assert found["lease_until"] > found["run_after"] + jump
    assert await queue.extend(conn, [lease]) == {lease.item_id}
