"""Retention deletes old rows that have ended, and keeps open ones however old they are."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from butlers.daemon import retention
from butlers.daemon.retention import Retention
from butlers.domain.clock import uuid7
from butlers.domain.errors import NotFound
from butlers.domain.message import Attachment, RouteDecision, RouteRequest
from butlers.domain.queues import SWITCHBOARD
from butlers.queue import leased_queue as queue
from butlers.tools.attachments import BlobStore
from butlers.wire.codec import encode
from support.in_process import InProcessButler
from support.messages import envelope, request_context
from support.waiting import until

LONG_AGO = timedelta(days=400)


def keeping(tester: InProcessButler, keep_days: int = 365) -> Retention:
    config = tester.butler.config
    storage = config.storage.model_copy(update={"keep_days": keep_days})
    changed = config.model_copy(update={"storage": storage})
    butler = tester.butler
    return Retention(changed, butler.database, butler.clock, butler.roles)


async def ingest(tester: InProcessButler, text: str, **changes: Any) -> UUID:
    async with tester.owner() as owner:
        return UUID((await owner.call("ingest", envelope(text, **changes)))["request_id"])


async def grow_old(tester: InProcessButler) -> None:
    if tester.butler.config.name == SWITCHBOARD:
        sql = "UPDATE message_inbox SET received_at = received_at - $1::interval"
        await tester.rows(sql, LONG_AGO)
    await tester.rows(
        "UPDATE queue_items SET created_at = created_at - $1::interval,"
        " finished_at = finished_at - $1::interval",
        LONG_AGO,
    )
    await tester.rows("UPDATE call_journal SET called_at = called_at - $1::interval", LONG_AGO)


async def end(tester: InProcessButler, request_id: UUID, state: str) -> None:
    """Set the state of a queued message, because no butler here could handle it."""

    async def set_state() -> list[dict[str, Any]]:
        return await tester.rows(
            "UPDATE queue_items SET state = $2, finished_at = now(), told = true"
            " WHERE key = $1 AND state = 'ready' RETURNING 1",
            str(request_id),
            state,
        )

    await until("the item to be ready", set_state)


async def kept(tester: InProcessButler) -> set[UUID]:
    return {row["request_id"] for row in await tester.rows("SELECT request_id FROM message_inbox")}


async def test_sweep_deletes_old_finished_messages_only(
    switchboard: InProcessButler,
) -> None:
    stranger = {"channel": "email", "provider": "imap", "endpoint_identity": "me@example.com"}
    held = await ingest(
        switchboard, "hello", source=stranger, sender={"identity": "anna@example.com"}
    )
    over, dead, waiting = [await ingest(switchboard, text) for text in ("one", "two", "three")]
    await end(switchboard, over, "done")
    await end(switchboard, dead, "dead")
    await grow_old(switchboard)
    young = await ingest(switchboard, "four")
    await end(switchboard, young, "done")

    deleted = await keeping(switchboard).sweep()
    assert (deleted["message_inbox"], deleted["queue_items"]) == (1, 1)
    assert await kept(switchboard) == {held, dead, waiting, young}
    decided = await switchboard.rows("SELECT DISTINCT request_id FROM route_decisions")
    assert over not in {row["request_id"] for row in decided}
    async with switchboard.owner() as owner:
        (letter,) = (await owner.call("dead_letters_list"))["dead_letters"]
        await owner.call("dead_letters_replay", {"id": letter["id"]})
    assert sum((await keeping(switchboard).sweep()).values()) == 0


async def test_keep_days_zero_deletes_nothing(switchboard: InProcessButler) -> None:
    over = await ingest(switchboard, "one")
    await end(switchboard, over, "done")
    await grow_old(switchboard)
    assert switchboard.butler.config.storage.keep_days == 0, "the default"
    assert await keeping(switchboard, keep_days=0).sweep() == {}
    assert await kept(switchboard) == {over}


async def test_sweep_deletes_in_batches(
    switchboard: InProcessButler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "BATCH", 2)
    for number in range(5):
        await end(switchboard, await ingest(switchboard, f"{number}"), "done")
    await grow_old(switchboard)
    deleted = await keeping(switchboard).sweep()
    assert (deleted["message_inbox"], deleted["queue_items"]) == (5, 5)


async def test_journal_of_a_dead_letter_is_kept(tester: InProcessButler) -> None:
    """A replay must find the recorded calls."""
    over, dead = request_context(), request_context()
    async with tester.butler.database.transaction() as connection:
        for request in (over, dead):
            route = RouteRequest(request, "tester", "x", RouteDecision("tester", "test", "test"))
            await queue.enqueue(
                connection, "routes", str(request.request_id), encode(route), delay=LONG_AGO
            )
    for request, state in ((over, "done"), (dead, "dead")):
        async with tester.session(request.request_id) as session:
            await session.call("write", {"text": state})
        await end(tester, request.request_id, state)
    await grow_old(tester)
    deleted = await keeping(tester).sweep()
    assert (deleted["call_journal"], deleted["queue_items"]) == (1, 1)
    (row,) = await tester.rows("SELECT request_id FROM call_journal")
    assert row["request_id"] == dead.request_id
    assert await tester.count("entries") == 2, "a module's own data is not deleted"


async def test_file_is_deleted_with_its_last_message(switchboard: InProcessButler) -> None:
    blobs = BlobStore(switchboard.butler.config.storage.blob_dir)
    unwanted, needed, young = (blobs.put(text) for text in (b"old", b"needed", b"young"))
    request = replace(request_context(), request_id=uuid7())
    file = Attachment("text/plain", "x.txt", 6, needed)
    route = RouteRequest(
        request, "health", "x", RouteDecision("health", "test", "test"), attachments=(file,)
    )
    async with switchboard.butler.database.transaction() as connection:
        await queue.enqueue(
            connection, "unserved", str(request.request_id), encode(route), delay=LONG_AGO
        )
    for path in switchboard.butler.config.storage.blob_dir.glob("*/*"):
        if path.name not in young:
            os.utime(path, (0, time.time() - LONG_AGO.total_seconds()))
    assert (await keeping(switchboard).sweep())["files"] == 1
    assert (blobs.get(needed), blobs.get(young)) == (b"needed", b"young")
    with pytest.raises(NotFound):
        blobs.get(unwanted)


def test_interrupted_sweep_deletes_no_needed_file(
    switchboard: InProcessButler,
) -> None:
    folder = switchboard.butler.config.storage.blob_dir
    blobs = BlobStore(folder)
    reference = blobs.put(b"wanted")
    (path,) = folder.glob("*/*")
    path.replace(path.with_suffix(".aside"))
    assert blobs.sweep(datetime.now(UTC) + timedelta(days=1), {reference}) == 0
    assert blobs.get(reference) == b"wanted"
