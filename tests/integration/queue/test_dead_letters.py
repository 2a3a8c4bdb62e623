"""Dead letters: the sender is told once, later items continue, and they can be replayed."""

from __future__ import annotations

import json
from collections.abc import Awaitable
from dataclasses import replace
from typing import Any, TypeVar
from uuid import UUID

import pytest

from butlers.domain.clock import uuid7
from butlers.domain.errors import NotFound
from butlers.domain.message import RouteDecision, RouteRequest
from butlers.domain.queues import ROUTES
from butlers.queue import leased_queue as queue
from butlers.queue.outbox import queue_reply, queue_report
from butlers.sessions.routes import accept_route
from butlers.wire.client import McpClient
from support.fake_runtime import FakeRuntime
from support.in_process import InProcessButler
from support.messages import request_context
from support.waiting import until

T = TypeVar("T")


async def crash(_butler: McpClient) -> str:
    raise RuntimeError("it breaks each time")


async def hurried(tester: InProcessButler, wanted: Awaitable[T]) -> T:
    """Return what is wanted, and let the next attempt of every route begin now."""
    async with tester.butler.database.transaction() as connection:
        await queue.make_due(connection, ROUTES)
    return await wanted


async def route(tester: InProcessButler, text: str) -> UUID:
    request = replace(request_context(), request_id=uuid7())
    decision = RouteDecision("tester", "fallback", "test")
    async with tester.butler.database.transaction() as connection:
        await accept_route(connection, RouteRequest(request, "tester", text, decision))
    return request.request_id


async def replies(tester: InProcessButler, request_id: UUID) -> list[str]:
    rows = await tester.rows("SELECT payload FROM queue_items WHERE queue = 'notify' ORDER BY id")
    found = [json.loads(row["payload"]) for row in rows]
    return [reply["message"] for reply in found if reply["request_id"] == str(request_id)]


async def dead(tester: InProcessButler) -> list[dict[str, Any]]:
    async with tester.owner() as owner:
        found: list[dict[str, Any]] = (await owner.call("dead_letters_list"))["dead_letters"]
        return found


async def test_sender_is_told_once_and_later_items_continue(tester: InProcessButler) -> None:
    tester.butler.spawner.model = FakeRuntime(crash)
    broken = await route(tester, "think about it")
    whole = await route(tester, "ping")
    (told,) = await until("the sender to be told", lambda: hurried(tester, replies(tester, broken)))
    assert "Your message could not be handled" in told
    assert "it breaks each time" in told
    assert await until("the next", lambda: replies(tester, whole)) == ["pong"]
    (letter,) = await dead(tester)
    assert (letter["queue"], letter["key"], letter["attempts"]) == ("routes", str(broken), 8)
    await tester.butler.stop()
    await tester.start()
    assert len(await replies(tester, broken)) == 1


async def test_dead_letter_is_shown_and_replayed(tester: InProcessButler) -> None:
    tester.butler.spawner.model = FakeRuntime(crash)
    request_id = await route(tester, "think about it")
    await until("it to die", lambda: hurried(tester, dead(tester)))
    tester.butler.spawner.model = FakeRuntime()
    async with tester.owner() as owner:
        (letter,) = (await owner.call("dead_letters_list"))["dead_letters"]
        shown = await owner.call("dead_letters_get", {"id": letter["id"]})
        assert shown["payload"]["text"] == "think about it"
        await owner.call("dead_letters_replay", {"id": letter["id"]})
    await until("an answer", lambda: _has(replies(tester, request_id), "thought"))
    assert await dead(tester) == []


async def _has(found: Any, text: str) -> bool:
    return text in await found


async def test_dead_letter_is_discarded(tester: InProcessButler) -> None:
    tester.butler.spawner.model = FakeRuntime(crash)
    await route(tester, "think about it")
    await until("it to die", lambda: hurried(tester, dead(tester)))
    async with tester.owner() as owner:
        (letter,) = (await owner.call("dead_letters_list"))["dead_letters"]
        await owner.call("dead_letters_discard", {"id": letter["id"]})
        assert (await owner.call("dead_letters_list"))["dead_letters"] == []
        for tool in ("dead_letters_get", "dead_letters_replay", "dead_letters_discard"):
            with pytest.raises(NotFound):
                await owner.call(tool, {"id": letter["id"]})


async def test_item_of_a_dead_worker_is_reported(tester: InProcessButler) -> None:
    """Found by the recovery, not by a handler: attempts used up, holder gone."""
    request_id = uuid7()
    request = replace(request_context(), request_id=request_id)
    decision = RouteDecision("tester", "fallback", "test")
    async with tester.butler.database.transaction() as connection:
        await accept_route(connection, RouteRequest(request, "tester", "ping", decision))
        await connection.execute(
            "UPDATE queue_items SET state = 'leased', attempts = max_attempts, holder = 1,"
            " lease_until = now() - interval '1 minute' WHERE key = $1",
            str(request_id),
        )
    await tester.butler.stop()
    await tester.start()
    (told,) = await until("the sender to be told", lambda: replies(tester, request_id))
    assert "the worker died or lost its lease" in told


async def test_unreadable_dead_letter_does_not_stop_the_notices(tester: InProcessButler) -> None:
    async with tester.butler.database.transaction() as connection:
        await connection.execute(
            "INSERT INTO queue_items (id, queue, key, payload, state, max_attempts, error)"
            " VALUES ($1, 'routes', 'odd', '{}', 'dead', 8, 'odd')",
            uuid7(),
        )
    tester.butler.spawner.model = FakeRuntime(crash)
    request_id = await route(tester, "think about it")
    assert await until("the other to be told", lambda: hurried(tester, replies(tester, request_id)))


async def test_the_path_of_a_request(tester: InProcessButler) -> None:
    request_id = await route(tester, "keep this")
    await until("an answer", lambda: replies(tester, request_id))
    async with tester.owner() as owner:
        hops = (await owner.call("request_path", {"request_id": str(request_id)}))["hops"]
        assert [hop["hop"] for hop in hops] == [
            "queued",
            "session",
            "call",
            "queued",
            "call",
        ]
        assert [hop["tool"] for hop in hops if hop["hop"] == "call"] == ["write", "notify"]
        assert hops[1]["outcome"] in ("ok", None)
        nothing = await owner.call("request_path", {"request_id": str(uuid7())})
        assert nothing == {"hops": []}


async def test_owner_is_told_once_of_a_lost_notification(tester: InProcessButler) -> None:
    async def words() -> list[str]:
        rows = await tester.rows(
            "SELECT payload FROM queue_items WHERE queue = 'notify' ORDER BY id"
        )
        return [json.loads(row["payload"])["message"] for row in rows]

    async def bury(message: str) -> None:
        async with tester.butler.database.transaction() as connection:
            await connection.execute(
                "UPDATE queue_items SET state = 'dead', error = 'unavailable for a day', told = false"
                " WHERE queue = 'notify' AND payload ->> 'message' = $1",
                message,
            )
            await queue.notify(connection, queue.DEAD)

    async with tester.butler.database.transaction() as connection:
        await queue_reply(connection, "tester", request_context(), "your train leaves at nine")
    await bury("your train leaves at nine")

    async def told() -> str | None:
        return next((text for text in await words() if "handed on" in text), None)

    message = await until("the owner to be told", told)
    assert "reply to console:owner on console, from tester: unavailable for a day" in message
    await bury(message)
    async with tester.butler.database.transaction() as connection:
        await connection.execute("UPDATE queue_items SET told = false WHERE queue = 'notify'")
        await queue.notify(connection, queue.DEAD)

    async def all_seen() -> bool | None:
        return (
            not await tester.rows("SELECT 1 FROM queue_items WHERE state = 'dead' AND NOT told")
            or None
        )

    await until("both to be looked at", all_seen)
    assert len(await words()) == 2, "the same is told once, and the word of it is not told of"


async def test_lost_report_is_not_a_lost_notification(
    tester: InProcessButler,
) -> None:
    """The Switchboard reports the part that waits for it; here it is an ordinary dead letter."""
    request = request_context()
    async with tester.butler.database.transaction() as connection:
        await queue_report(connection, request, well=True)
        await connection.execute(
            "UPDATE queue_items SET state = 'dead', error = 'unavailable for a day' WHERE queue = 'notify'"
        )
        await queue.notify(connection, queue.DEAD)

    async def seen() -> list[dict[str, Any]]:
        return await tester.rows("SELECT payload FROM queue_items WHERE state = 'dead' AND told")

    (row,) = await until("it to be looked at", seen)
    assert json.loads(row["payload"])["ended"]["request_id"] == str(request.request_id)
    assert len(await tester.rows("SELECT 1 FROM queue_items")) == 1, "and nothing was told"
    assert [letter["queue"] for letter in await dead(tester)] == ["notify"]
