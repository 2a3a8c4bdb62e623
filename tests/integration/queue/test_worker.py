"""The worker: what becomes of an item when its handler answers, fails, hangs or is overtaken."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from structlog.testing import capture_logs

from butlers.db.database import Connection, Database, Login
from butlers.db.embedded import EmbeddedPostgres
from butlers.db.migrations import butler_chains, migrate, shipped_versions
from butlers.db.provision import ButlerSchema, Provisioner
from butlers.domain.errors import (
    ButlersError,
    DatabaseUnavailable,
    PeerUnavailable,
    Postponed,
    RateLimited,
)
from butlers.queue import leased_queue as queue
from butlers.queue import worker
from butlers.queue.leased_queue import Lease
from butlers.queue.listener import Listener
from butlers.queue.worker import FinishWith, Handler, QueueWorker
from butlers.wire.tokens import FleetKey
from support import queue_history
from support.waiting import until

QUEUE = "work"
StartWorker = Callable[..., Awaitable[QueueWorker]]


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Delays as short as they can be without changing what they do."""
    monkeypatch.setattr(worker, "BACKOFF_BASE_S", 0.01)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with capture_logs():  # to print an exception nicely takes longer than the test
        yield


@pytest.fixture
async def listener(recorded_database: Database) -> AsyncIterator[Listener]:
    opened = Listener(recorded_database.login, "tests:listener", recover_every_s=0.05)
    task = asyncio.create_task(opened.run(await opened.open()))
    yield opened
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
async def start_worker(
    recorded_database: Database, listener: Listener
) -> AsyncIterator[StartWorker]:
    started: list[QueueWorker] = []

    async def start(handler: Handler, **options: Any) -> QueueWorker:
        made = QueueWorker(recorded_database, listener, QUEUE, handler, **options)
        made.start()
        started.append(made)
        return made

    yield start
    for made in started:
        await made.stop(0)


async def put(database: Database, *keys: str, **options: Any) -> None:
    async with database.transaction() as connection:
        for key in keys:
            await queue.enqueue(connection, QUEUE, key, {"key": key}, **options)


async def item(database: Database, key: str) -> asyncpg.Record:
    async with database.transaction() as connection:
        return await connection.fetchrow("SELECT * FROM queue_items WHERE key = $1", key)


async def ended(database: Database, *keys: str) -> list[asyncpg.Record]:
    """The items, when all of them have come to an end."""

    async def look() -> list[asyncpg.Record] | None:
        found = [await item(database, key) for key in keys]
        return found if all(row["state"] in ("done", "dead") for row in found) else None

    return await until(f"{keys} to end", look)


async def act_on(database: Database, lease: Lease) -> Any:
    async with database.transaction() as connection:
        return await queue_history.act(connection, lease.key, "worker")


# -- answers and failures --------------------------------------------------------------------------


async def test_an_answer_is_kept_as_the_result(
    recorded_database: Database, start_worker: StartWorker
) -> None:
    async def handler(lease: Lease) -> Any:
        return {"seen": lease.payload, "attempt": lease.attempt}

    await start_worker(handler)
    await put(recorded_database, "k")
    [done] = await ended(recorded_database, "k")
    assert done["state"] == "done"
    assert done["result"] == {"seen": {"key": "k"}, "attempt": 1}


async def test_waiting_for_an_unavailable_peer_is_no_attempt(
    recorded_database: Database, start_worker: StartWorker
) -> None:
    tried: list[int] = []

    async def handler(lease: Lease) -> str:
        tried.append(lease.attempt)
        if len(tried) < 4:
            found = await item(recorded_database, "k")
            assert found["error"] == (None if len(tried) == 1 else "unavailable")
            raise PeerUnavailable("unavailable")
        return "at last"

    await start_worker(handler)
    await put(recorded_database, "k")
    [done] = await ended(recorded_database, "k")
    assert tried == [1, 1, 1, 1]
    assert (done["state"], done["result"], done["error"]) == ("done", "at last", None)


async def test_item_that_waited_a_day_becomes_a_dead_letter(
    recorded_database: Database, start_worker: StartWorker
) -> None:
    async def handler(_lease: Lease) -> None:
        raise PeerUnavailable("unavailable")

    await put(recorded_database, "k")
    async with recorded_database.transaction() as connection:
        await connection.execute("UPDATE queue_items SET waits_since = now() - interval '25 hours'")
    await start_worker(handler)
    [done] = await ended(recorded_database, "k")
    assert (done["state"], done["error"]) == ("dead", "unavailable")


async def test_longest_wait_starts_with_the_first_wait(
    recorded_database: Database, start_worker: StartWorker
) -> None:
    tried: list[datetime | None] = []

    async def handler(lease: Lease) -> str:
        tried.append((await item(recorded_database, lease.key))["waits_since"])
        if len(tried) == 2:
            raise Postponed("paused", datetime.now(UTC))
        if len(tried) < 4:
            raise PeerUnavailable("unavailable")
        return "at last"

    await put(recorded_database, "k")
    async with recorded_database.transaction() as connection:
        await connection.execute("UPDATE queue_items SET created_at = now() - interval '25 hours'")
    await start_worker(handler)
    [done] = await ended(recorded_database, "k")
    assert (done["state"], done["result"]) == ("done", "at last")
    assert [since is not None for since in tried] == [False, True, False, True]


def limited(after_s: float | None) -> RateLimited:
    error = RateLimited("no more for now")
    error.after_s = after_s
    return error


@pytest.mark.parametrize(
    ("error", "least", "most"),
    [
        (PeerUnavailable("away"), 10, 40),
        (limited(None), 180, 400),
        (limited(600), 580, 1_100),
        (limited(1_000_000), 2_600, 4_600),  # an absurd number does not mean days
    ],
    ids=["away", "limited", "limited with a time", "limited for ever"],
)
async def test_rate_limited_item_waits_with_long_pauses(
    recorded_database: Database,
    start_worker: StartWorker,
    error: Exception,
    least: float,
    most: float,
) -> None:
    async def handler(_lease: Lease) -> None:
        raise error

    await put(recorded_database, "k")
    async with recorded_database.transaction() as connection:
        await connection.execute("UPDATE queue_items SET waits_since = now() - interval '12 hours'")
    await start_worker(handler)

    async def waits() -> float | None:
        async with recorded_database.transaction() as connection:
            return await connection.fetchval(
                "SELECT extract(epoch FROM run_after - now())::float FROM queue_items"
                " WHERE error IS NOT NULL AND state = 'ready'"
            )

    assert least <= await until("it to wait", waits) <= most


def test_backoff_grows_with_jitter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "BACKOFF_BASE_S", 0.5)
    for attempt, ceiling in ((1, 0.5), (2, 1), (3, 2), (7, 32), (8, 60), (50, 60)):
        delays = {worker.backoff(attempt).total_seconds() for _ in range(50)}
        assert ceiling / 2 <= min(delays)
        assert max(delays) <= ceiling
        assert len(delays) > 1


async def test_permanent_error_makes_a_dead_letter_at_once(
    recorded_database: Database, start_worker: StartWorker
) -> None:
    tried: list[int] = []

    async def handler(lease: Lease) -> None:
        tried.append(lease.attempt)
        raise ButlersError("that will never work")

    await start_worker(handler)
    await put(recorded_database, "k")
    [dead] = await ended(recorded_database, "k")
    assert tried == [1]
    assert (dead["state"], dead["error"]) == ("dead", "that will never work")
    assert dead["finished_at"] is not None


async def test_unexpected_error_is_retried_and_blocks_no_later_item(
    recorded_database: Database, start_worker: StartWorker
) -> None:
    tried: list[str] = []

    async def handler(lease: Lease) -> None:
        tried.append(lease.key)
        if lease.key == "poison":
            raise LookupError("unexpected")

    await put(recorded_database, "poison", max_attempts=3)
    await put(recorded_database, "b", "c")
    await start_worker(handler)
    poison, *others = await ended(recorded_database, "poison", "b", "c")
    assert (poison["state"], poison["attempts"]) == ("dead", 3)
    assert poison["error"] == "LookupError: unexpected"
    assert [row["state"] for row in others] == ["done", "done"]
    assert sorted(tried) == ["b", "c", "poison", "poison", "poison"]


@pytest.mark.parametrize("text", ["a NUL \x00 in it", "half a \ud800 pair", "ü" * 10_000])
async def test_any_error_text_can_be_stored(
    recorded_database: Database, start_worker: StartWorker, text: str
) -> None:
    async def handler(_lease: Lease) -> None:
        raise ButlersError(text)

    await start_worker(handler)
    await put(recorded_database, "k")
    [dead] = await ended(recorded_database, "k")
    assert dead["state"] == "dead"
    assert dead["error"][:6] == text[:6]


@pytest.mark.parametrize("result", [object(), float("nan"), {"text": "a NUL \x00"}, "\ud800"])
async def test_unstorable_result_fails_its_item(
    recorded_database: Database, start_worker: StartWorker, result: object
) -> None:
    async def handler(_lease: Lease) -> object:
        return result

    await start_worker(handler)
    await put(recorded_database, "k", max_attempts=2)
    [dead] = await ended(recorded_database, "k")
    assert (dead["state"], dead["attempts"]) == ("dead", 2)
    assert dead["error"]


async def test_unstorable_result_fails_no_other_item_of_the_group(
    recorded_database: Database, start_worker: StartWorker
) -> None:
    async def handler(lease: Lease) -> object:
        return object() if lease.key == "odd" else "fine"

    await put(recorded_database, "a", "odd", "b", max_attempts=1)
    await start_worker(handler, concurrency=3)
    odd, *others = await ended(recorded_database, "odd", "a", "b")
    assert odd["state"] == "dead"
    assert [(row["state"], row["result"]) for row in others] == [("done", "fine")] * 2
    async with recorded_database.transaction() as connection:
        await queue_history.assert_history_is_sound(connection)


async def test_finish_write_commits_with_the_completion(
    recorded_database: Database, start_worker: StartWorker
) -> None:
    async def handler(lease: Lease) -> FinishWith:
        async def write(connection: Connection) -> None:
            await connection.execute("INSERT INTO effects VALUES ($1, 'worker')", lease.key)
            if lease.attempt == 1:
                raise LookupError("in the middle of it")

        return FinishWith(f"attempt {lease.attempt}", write)

    await put(recorded_database, "k")
    await start_worker(handler)
    [done] = await ended(recorded_database, "k")
    assert done["result"] == "attempt 2"
    async with recorded_database.transaction() as connection:
        assert await connection.fetchval("SELECT count(*) FROM effects") == 1


async def test_database_outage_causes_no_long_pause(
    recorded_database: Database, start_worker: StartWorker
) -> None:
    async def handler(lease: Lease) -> None:
        if (await item(recorded_database, lease.key))["error"] is None:
            raise DatabaseUnavailable

    await put(recorded_database, "k")
    async with recorded_database.transaction() as connection:
        await connection.execute("UPDATE queue_items SET waits_since = now() - interval '20 hours'")
    await start_worker(handler)
    [done] = await ended(recorded_database, "k")
    async with recorded_database.transaction() as connection:
        claimed = await connection.fetchval("SELECT count(*) FROM history WHERE became = 'leased'")
    assert (done["state"], claimed) == ("done", 2)
    assert done["run_after"] - done["waits_since"] < timedelta(hours=20, seconds=10)


async def test_a_handler_whose_own_helper_was_cancelled_is_tried_again(
    recorded_database: Database, start_worker: StartWorker
) -> None:
    async def handler(lease: Lease) -> str:
        if lease.attempt == 1:
            helper = asyncio.create_task(asyncio.Event().wait())
            asyncio.get_running_loop().call_soon(helper.cancel)
            await helper
        return "second"

    await start_worker(handler)
    await put(recorded_database, "k")
    [done] = await ended(recorded_database, "k")
    assert (done["result"], done["attempts"]) == ("second", 2)


async def test_no_more_at_once_than_wanted(
    recorded_database: Database, start_worker: StartWorker
) -> None:
    running, most = 0, 0

    async def handler(_lease: Lease) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1

    keys = [str(number) for number in range(20)]
    await put(recorded_database, *keys)
    await start_worker(handler, concurrency=3)
    await ended(recorded_database, *keys)
    assert most == 3


# -- stopping --------------------------------------------------------------------------------------


async def test_stopping_lets_a_running_item_end(
    recorded_database: Database, start_worker: StartWorker
) -> None:
    started, go = asyncio.Event(), asyncio.Event()

    async def handler(_lease: Lease) -> str:
        started.set()
        await go.wait()
        return "ended"

    await put(recorded_database, "running", "behind")
    working = await start_worker(handler)
    await started.wait()
    stopping = asyncio.create_task(working.stop(queue_history.PATIENCE_S))
    await asyncio.sleep(0)
    go.set()
    await stopping
    assert (await item(recorded_database, "running"))["result"] == "ended"
    behind = await item(recorded_database, "behind")
    assert (behind["state"], behind["attempts"]) == ("ready", 0)


async def test_stop_releases_a_slow_item_without_an_attempt(
    recorded_database: Database, start_worker: StartWorker
) -> None:
    started, cancelled = asyncio.Event(), asyncio.Event()

    async def slow(lease: Lease) -> str:
        if lease.fence > 1:
            return "by the next one"
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return "never"

    await put(recorded_database, "k", max_attempts=1)
    working = await start_worker(slow)
    await started.wait()
    await working.stop(0.01)
    assert cancelled.is_set()
    given_back = await item(recorded_database, "k")
    assert (given_back["state"], given_back["attempts"]) == ("ready", 0)
    assert given_back["holder"] is None
    await start_worker(slow)
    [done] = await ended(recorded_database, "k")
    assert (done["state"], done["result"], done["attempts"]) == ("done", "by the next one", 1)


async def test_stopping_in_the_middle_of_a_claim_counts_no_attempt(
    recorded_database: Database, listener: Listener
) -> None:
    """Whatever the claim got is given back, even if the stop came between its commit and its return."""

    async def handler(_lease: Lease) -> None:
        await asyncio.Event().wait()

    await put(recorded_database, *(str(number) for number in range(40)), max_attempts=1)
    for turn in range(40):
        working = QueueWorker(recorded_database, listener, QUEUE, handler)
        working.start()
        await asyncio.sleep(turn * 0.0003)  # another point of the claim each time
        await working.stop(0)
        async with recorded_database.transaction() as connection:
            assert await queue.depths(connection) == {QUEUE: {"ready": 40}}
            assert await connection.fetchval("SELECT max(attempts) FROM queue_items") == 0


# -- leases ----------------------------------------------------------------------------------------


async def test_a_long_item_keeps_its_lease(
    recorded_database: Database, start_worker: StartWorker
) -> None:
    extended, seen = asyncio.Event(), []

    async def handler(lease: Lease) -> str:
        await extended.wait()
        return str(lease.attempt)

    await put(recorded_database, "k")
    await start_worker(handler, lease=timedelta(seconds=1))

    async def extensions() -> bool:
        seen.append((await item(recorded_database, "k"))["lease_until"])
        return len({until for until in seen if until}) >= 5

    await until("the lease to be extended past its first end", extensions)
    extended.set()
    [done] = await ended(recorded_database, "k")
    assert (done["result"], done["attempts"]) == ("1", 1)


async def test_a_lost_lease_ends_the_work(
    recorded_database: Database, start_worker: StartWorker
) -> None:
    started, cancelled = asyncio.Event(), asyncio.Event()

    async def handler(lease: Lease) -> str:
        if lease.attempt == 2:
            return "the second"
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return "never"

    await put(recorded_database, "k")
    await start_worker(handler, lease=timedelta(seconds=0.3), concurrency=2)
    await started.wait()
    async with recorded_database.transaction() as connection:
        await connection.execute("UPDATE queue_items SET lease_until = now() - interval '1 s'")
        await queue.recover(connection)
    await asyncio.wait_for(cancelled.wait(), queue_history.PATIENCE_S)
    [done] = await ended(recorded_database, "k")
    assert (done["result"], done["attempts"]) == ("the second", 2)


async def test_late_work_is_refused(recorded_database: Database, start_worker: StartWorker) -> None:
    started, go = asyncio.Event(), asyncio.Event()

    async def frozen(lease: Lease) -> str:
        started.set()
        await go.wait()
        return f"attempt {lease.attempt}"

    await put(recorded_database, "k")
    await start_worker(frozen)
    await started.wait()
    async with recorded_database.transaction() as connection:
        await connection.execute("UPDATE queue_items SET lease_until = now() - interval '1 s'")
        await queue.recover(connection)
        [taken_over] = await queue.claim(connection, QUEUE, holder=0, lease=timedelta(hours=1))
        await queue.complete(connection, taken_over, "by the other")
    with capture_logs() as logs:
        go.set()

        async def refused() -> bool:
            return any(entry["event"] == "late work refused" for entry in logs)

        await until("the late work to be refused", refused)
    assert (await item(recorded_database, "k"))["result"] == "by the other"


# -- without the database ----------------------------------------------------------------------------


async def test_lost_listener_reconnects_and_locks_again(
    recorded_database: Database, listener: Listener, start_worker: StartWorker
) -> None:
    async def handler(_lease: Lease) -> None:
        return None

    await start_worker(handler)

    async def vouched() -> bool:
        async with recorded_database.transaction() as connection:
            return listener.holds_lock and await queue_history.is_locked(
                connection, listener.holder
            )

    await until("the lock", vouched)
    async with recorded_database.transaction() as connection:
        [pid] = await connection.fetch(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'tests:listener' AND datname = current_database()"
        )
    assert pid[0]
    await put(recorded_database, "k")
    [done] = await ended(recorded_database, "k")
    assert done["state"] == "done"
    await until("the lock again", vouched)


@pytest.fixture
async def own_server() -> AsyncIterator[EmbeddedPostgres]:
    with tempfile.TemporaryDirectory(prefix="bh-") as home:
        server = EmbeddedPostgres(Path(home))  # durable: it will be killed
        await asyncio.to_thread(server.acquire)
        yield server
        await asyncio.to_thread(server.release)


async def test_work_continues_exactly_once_after_a_database_outage(
    own_server: EmbeddedPostgres, key: FleetKey
) -> None:
    admin = Login(own_server.dsn(), "postgres", None, "postgres")
    login = await Provisioner(admin, key).provision(ButlerSchema("tester", "butler_tester", None))
    await migrate(login, butler_chains("tester", shipped_versions()))
    database = await Database.open(login, "tests")
    listener = Listener(login, "tests:listener", recover_every_s=0.2)
    listening = asyncio.create_task(listener.run(await listener.open()))
    acted, wait = asyncio.Event(), asyncio.Event()

    async def handler(lease: Lease) -> Any:
        answer = await act_on(database, lease)
        if lease.key == "in the middle":  # its effect is there, its end is not
            acted.set()
            await wait.wait()
        return answer

    working = QueueWorker(database, listener, QUEUE, handler, concurrency=2)
    working.start()
    try:
        async with database.transaction() as connection:
            await queue_history.prepare(connection)
        await put(database, "before")
        await ended(database, "before")
        await put(database, "in the middle")
        await acted.wait()

        pid = own_server.pid
        assert pid
        os.kill(pid, signal.SIGKILL)

        async def refused() -> bool:
            try:
                await item(database, "before")
            except DatabaseUnavailable:
                return True
            return False

        await until("the database to be gone", refused)
        wait.set()  # its end cannot be written down now
        await asyncio.sleep(0.1)
        assert await asyncio.to_thread(own_server.ensure_running)

        [done] = await ended(database, "in the middle")
        assert (done["state"], done["attempts"]) == ("done", 1), "the same run wrote its end down"
        await put(database, "after")
        await ended(database, "after")
        async with database.transaction() as connection:
            await queue_history.assert_each_ended_once(connection)
            assert await connection.fetchval("SELECT count(*) FROM effects") == 3
    finally:
        await working.stop(0)
        listening.cancel()
        with suppress(asyncio.CancelledError):
            await listening
        await database.close()


# -- whose turn it is --------------------------------------------------------------------------------


async def test_less_urgent_item_runs_after_a_streak(
    recorded_database: Database, start_worker: StartWorker
) -> None:
    seen: list[str] = []

    async def handler(lease: Lease) -> Any:
        seen.append(lease.key)

    await put(recorded_database, *(f"low-{n}" for n in range(3)), priority=2)
    await put(recorded_database, *(f"high-{n}" for n in range(9)), priority=0)
    await start_worker(handler, streak=4)
    await ended(
        recorded_database, *(f"low-{n}" for n in range(3)), *(f"high-{n}" for n in range(9))
    )
    kinds = "".join(key[0] for key in seen)
    assert kinds == "hhhhlhhhhlhl"


async def test_least_urgent_tier_is_not_starved(
    recorded_database: Database, start_worker: StartWorker
) -> None:
    seen: list[str] = []

    async def handler(lease: Lease) -> Any:
        seen.append(lease.key)

    every = [
        f"{name}-{n}" for name, items in (("l", 2), ("m", 12), ("h", 12)) for n in range(items)
    ]
    for name, priority in (("l", 2), ("m", 1), ("h", 0)):
        await put(recorded_database, *(key for key in every if key[0] == name), priority=priority)
    await start_worker(handler, streak=4)
    await ended(recorded_database, *every)
    kinds = "".join(key[0] for key in seen)
    assert kinds.index("m") <= 4, "after a streak of the most urgent"
    assert kinds.index("l") <= 9, "after a streak of all that is more urgent"
    assert kinds.count("l") == 2


async def test_a_batch_is_the_most_that_is_claimed_at_once(
    recorded_database: Database, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    claim = queue.claim

    async def watched(*arguments: Any, limit: int, **options: Any) -> list[Lease]:
        asked.append(limit)
        return await claim(*arguments, limit=limit, **options)

    async def handler(lease: Lease) -> Any:
        return None

    monkeypatch.setattr(queue, "claim", watched)
    await put(recorded_database, *(str(n) for n in range(7)))
    working = QueueWorker(recorded_database, listener, QUEUE, handler, concurrency=20, batch=3)
    working.start()
    await ended(recorded_database, *(str(n) for n in range(7)))
    await working.stop(0)
    assert max(asked) == 3


async def test_expired_lease_is_recovered_after_the_grace_time(recorded_database: Database) -> None:
    await put(recorded_database, "k")
    async with recorded_database.transaction() as connection:
        await connection.execute("SELECT pg_advisory_lock_shared(77)")
        try:
            await queue.claim(connection, QUEUE, 77, lease=timedelta(seconds=-5))
            assert await queue.recover(connection, timedelta(seconds=60)) == 0
            assert await queue.recover(connection, timedelta(seconds=1)) == 1
        finally:
            await connection.execute("SELECT pg_advisory_unlock_shared(77)")


async def test_only_due_items_make_a_queue_full(recorded_database: Database) -> None:
    await put(recorded_database, "a", "b")
    async with recorded_database.transaction() as connection:
        assert await queue.is_full(connection, QUEUE, 2)
        assert not await queue.is_full(connection, QUEUE, 3)
        await connection.execute("UPDATE queue_items SET run_after = now() + interval '1 hour'")
        assert not await queue.is_full(connection, QUEUE, 1)
