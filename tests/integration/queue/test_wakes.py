"""Wake-ups: a commit of this process wakes its workers at once; an item's end, only if more may be due."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from butlers.db.database import Database
from butlers.queue import leased_queue as queue
from butlers.queue import worker
from butlers.queue.leased_queue import Lease
from butlers.queue.listener import Listener
from butlers.queue.worker import QueueWorker
from support.waiting import until

QUEUE = "work"
OWN_PID, OTHER_PID = 11, 22


@pytest.fixture
def unheard(database: Database) -> Listener:
    """A listener without a connection: no notification reaches it."""
    listener = Listener(database.login, "tests:listener")
    listener.holds_lock = True
    database.on_commit = listener.wake
    return listener


@pytest.fixture
async def working(
    database: Database, unheard: Listener, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[QueueWorker, list[str]]]:
    """A worker that is woken by commits alone, and the keys that it has handled."""
    monkeypatch.setattr(worker, "SCAN_S", 600.0)
    handled: list[str] = []

    async def handle(lease: Lease) -> None:
        handled.append(lease.key)

    made = QueueWorker(database, unheard, QUEUE, handle, concurrency=2)
    made.start()
    await until("the first claim", lambda: _is_idle(made))
    yield made, handled
    await made.stop(0)


def _is_idle(made: QueueWorker) -> bool:
    return made._claims > 0 and not made._running and not made._wake.is_set()


async def put(database: Database, *keys: str, lane: str | None = None) -> None:
    async with database.transaction() as connection:
        for key in keys:
            await queue.enqueue(connection, QUEUE, key, {}, lane=lane)


async def fail_after_put(database: Database, key: str) -> None:
    async with database.transaction() as connection:
        await queue.enqueue(connection, QUEUE, key, {})
        raise LookupError


async def test_commit_of_this_process_wakes_its_worker(
    database: Database, working: tuple[QueueWorker, list[str]]
) -> None:
    _, handled = working
    await put(database, "a")
    await until("the item", lambda: handled == ["a"])


async def test_rolled_back_transaction_wakes_nobody(database: Database, unheard: Listener) -> None:
    event = asyncio.Event()
    with unheard.wakes(QUEUE, event):
        with pytest.raises(LookupError):
            await fail_after_put(database, "a")
        assert not event.is_set()
        await put(database)  # the topics of the transaction that failed are forgotten
        assert not event.is_set()
        await put(database, "a")
        assert event.is_set()


async def test_end_of_a_single_item_makes_no_claim(
    database: Database, working: tuple[QueueWorker, list[str]]
) -> None:
    made, handled = working
    before = made._claims
    await put(database, "a")
    await until("the item", lambda: handled == ["a"])
    await until("an idle worker", lambda: _is_idle(made))
    assert made._claims == before + 1


async def test_end_of_an_item_claims_the_next_of_its_lane(
    database: Database, working: tuple[QueueWorker, list[str]]
) -> None:
    _, handled = working
    await put(database, "a", "b", "c", lane="one")
    await until("the items", lambda: handled == ["a", "b", "c"])


async def test_items_beyond_the_slots_are_claimed_as_slots_get_free(
    database: Database, working: tuple[QueueWorker, list[str]]
) -> None:
    _, handled = working
    await put(database, *"abcdef")
    await until("the items", lambda: sorted(handled) == list("abcdef"))


def test_notification_of_an_own_commit_wakes_once(unheard: Listener) -> None:
    event = asyncio.Event()
    with unheard.wakes(QUEUE, event):
        unheard.wake({QUEUE}, OWN_PID)
        assert event.is_set()
        event.clear()
        unheard._heard(None, OWN_PID, "", QUEUE)
        assert not event.is_set()
        unheard._heard(None, OWN_PID, "", QUEUE)
        assert event.is_set()
        event.clear()
        unheard._heard(None, OTHER_PID, "", QUEUE)
        assert event.is_set()
