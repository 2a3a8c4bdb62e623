"""Dispatch of messages to butlers: recent conversation, parts, order, unavailable butlers."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest

from butlers.domain.clock import uuid7
from butlers.domain.errors import NotFound
from butlers.domain.message import joined
from butlers.wire.client import McpClient
from support.fake_runtime import FakeRuntime
from support.in_process import InProcessButler, MakeButler
from support.messages import envelope
from support.waiting import until


@pytest.fixture
async def switchboard(switchboard: InProcessButler, make_butler: MakeButler) -> InProcessButler:
    """A Switchboard with two running butlers and one that is not running."""
    for name in (None, "health"):
        tester = make_butler(name)
        await tester.start()
        await known(switchboard, tester.butler.config.name, tester.butler.url)
    await known(switchboard, "gone", "http://127.0.0.1:9/mcp")
    await known(switchboard, "general", "http://127.0.0.1:9/mcp")
    return switchboard


async def known(switchboard: InProcessButler, name: str, url: str) -> None:
    async with switchboard.peer(name) as peer:
        registration = {"name": name, "url": url, "description": name, "triggers": [f"@{name}"]}
        await peer.call("register", {"registration": registration})


async def ingest(tester: InProcessButler, text: str, **changes: Any) -> UUID:
    async with tester.owner() as owner:
        return UUID((await owner.call("ingest", envelope(text, **changes)))["request_id"])


async def routed(tester: InProcessButler, request_id: UUID, target: str) -> dict[str, Any]:
    """Return the route from the target's own tables."""

    async def look() -> list[dict[str, Any]]:
        schema = "health" if target == "health" else "public"
        return await tester.rows(
            f'SELECT payload FROM "{schema}".queue_items WHERE queue = $1 AND key = $2',
            "routes",
            str(request_id),
        )

    (row,) = await until(f"{target} to have it", look)
    payload: dict[str, Any] = json.loads(row["payload"])
    return payload


async def state_of(
    tester: InProcessButler, request_id: UUID, part: str | None = None
) -> dict[str, Any]:
    """Return the queue item of the message, or of one butler's part."""
    key = f"{request_id}:{part}" if part else str(request_id)

    async def look() -> list[dict[str, Any]]:
        return await tester.rows(
            "SELECT state, error, fence FROM queue_items WHERE queue = 'inbox' AND key = $1", key
        )

    (row,) = await until(f"{key} to be there", look)
    return row


def parts(*assigned: dict[str, Any]) -> FakeRuntime:
    async def think(butler: McpClient) -> str:
        for one in assigned:
            await butler.call("assign", {"reason": "test", **one})
        return ""

    return FakeRuntime(think)


# -- what was said before ----------------------------------------------------------------------------


async def test_route_contains_the_recent_conversation(switchboard: InProcessButler) -> None:
    first = await ingest(switchboard, "@health weight 80")
    await routed(switchboard, first, "health")
    async with switchboard.peer("health") as health:
        answer = {
            "delivery_id": str(uuid7()),
            "origin": "health",
            "intent": "reply",
            "channel": "console",
            "target": "console:owner",
            "message": "Logged: 80.",
            "request_id": str(first),
        }
        await health.call("deliver", {"delivery": answer})
    second = await ingest(switchboard, "@health make it 81")
    elsewhere = await ingest(switchboard, "@health hello", event={"external_thread_id": "other"})
    turns = (await routed(switchboard, second, "health"))["conversation"]
    assert [(turn["speaker"], turn["text"]) for turn in turns] == [
        ("person", "@health weight 80"),
        ("assistant", "Logged: 80."),
    ]
    assert (await routed(switchboard, elsewhere, "health"))["conversation"] == []


@pytest.mark.parametrize(
    ("asks", "pointed", "marked"),
    [
        ("owner", "anna@example.com", True),
        ("ben@example.com", "anna@example.com", True),
        ("anna@example.com", "anna@example.com", False),  # her own link
        ("owner", "owner", False),
        ("anna@example.com", "owner", False),
    ],
)
async def test_reply_with_a_link_of_another_participant_is_marked(
    switchboard: InProcessButler, asks: str, pointed: str, marked: bool
) -> None:
    async with switchboard.owner() as owner:
        for name in ("anna", "ben"):
            who = {"channel": "email", "identity": f"{name}@example.com"}
            await owner.call("contacts_allow", who)
        me = {"channel": "email", "identity": "owner", "role": "owner"}
        await owner.call("contacts_allow", me)

    async def write(sender: str, text: str) -> UUID:
        source = {"channel": "email", "provider": "imap", "endpoint_identity": "me@example.com"}
        thread = {"external_event_id": str(uuid7()), "external_thread_id": "t-1"}
        return await ingest(
            switchboard, text, source=source, sender={"identity": sender}, event=thread
        )

    await write(pointed, "@health look at https://evil.example/offer")
    asked = await write(asks, "@health and what do you say?")
    link = "https://evil.example/?secret=4711"
    answer = {
        "delivery_id": str(uuid7()),
        "origin": "health",
        "intent": "reply",
        "channel": "email",
        "target": "me@example.com",
        "message": f"See {link}",
        "request_id": str(asked),
    }
    async with switchboard.peer("health") as health:
        await health.call("deliver", {"delivery": answer})
    rows = await switchboard.rows("SELECT payload FROM queue_items WHERE queue = 'deliveries'")
    (handed_on,) = (json.loads(row["payload"]) for row in rows)
    assert handed_on["outside_links"] == ([link] if marked else [])


async def test_conversation_is_limited_by_number_and_age(switchboard: InProcessButler) -> None:
    for number in range(33):
        last = await ingest(switchboard, f"@health {number}")
    turns = (await routed(switchboard, last, "health"))["conversation"]
    assert [turn["text"] for turn in turns] == [f"@health {number}" for number in range(2, 32)]
    await switchboard.rows(
        "UPDATE message_inbox SET received_at = received_at - interval '16 minutes'"
    )
    later = await ingest(switchboard, "@health later")
    assert (await routed(switchboard, later, "health"))["conversation"] == []


# -- order -------------------------------------------------------------------------------------------


async def test_unavailable_butler_does_not_block_messages_for_others(
    switchboard: InProcessButler,
) -> None:
    waiting = await ingest(switchboard, "@gone first")
    behind = await ingest(switchboard, "@gone second")
    passing = await ingest(switchboard, "@health third")
    await routed(switchboard, passing, "health")
    assert (await state_of(switchboard, waiting))["state"] != "done"
    assert (await state_of(switchboard, behind))["state"] != "done"


async def test_messages_that_waited_arrive_in_order(switchboard: InProcessButler) -> None:
    sent = [await ingest(switchboard, f"@gone {number}") for number in range(5)]

    async def all_tried() -> bool | None:
        rows = await switchboard.rows("SELECT error FROM queue_items WHERE queue = 'inbox'")
        return all(row["error"] for row in rows) or None

    await until("each to have been tried", all_tried)
    (tester,) = await switchboard.rows("SELECT url FROM butler_registry WHERE name = 'tester'")
    # It registers again under the address of another butler, which rejects its messages.
    await known(switchboard, "gone", tester["url"])

    async def all_over() -> list[dict[str, Any]] | None:
        rows = await switchboard.rows(
            "SELECT key, finished_at FROM queue_items WHERE queue = 'inbox' AND state = 'dead'"
            " ORDER BY finished_at"
        )
        return rows if len(rows) == len(sent) else None

    rows = await until("each to have been taken there", all_over)
    assert [UUID(row["key"]) for row in rows] == sent


# -- several butlers -----------------------------------------------------------------------------------


async def test_parts_are_sent_to_their_butlers_concurrently(switchboard: InProcessButler) -> None:
    switchboard.butler.spawner.model = parts(
        {"butler": "tester", "part": "keep this"}, {"butler": "health", "part": "weight 80 kg"}
    )
    request_id = await ingest(switchboard, "keep this, and my weight is 80 kg")
    first, second = (
        await routed(switchboard, request_id, "tester"),
        await routed(switchboard, request_id, "health"),
    )
    assert (first["text"], second["text"]) == ("keep this", "weight 80 kg")
    assert first["report"]
    assert second["report"]


async def test_dependent_part_waits_for_the_previous_part(switchboard: InProcessButler) -> None:
    switchboard.butler.spawner.model = parts(
        {"butler": "tester", "part": "first"},
        {"butler": "health", "part": "second", "after_previous": True},
    )
    request_id = await ingest(switchboard, "first this, then that")
    await routed(switchboard, request_id, "tester")

    async def waits() -> bool | None:
        found = await state_of(switchboard, request_id, "health")
        return "has not finished" in (found["error"] or "") or None

    await until("the second part to wait", waits)
    assert await switchboard.rows('SELECT 1 FROM "health".queue_items') == []
    async with switchboard.peer("tester") as tester:
        await tester.call("route_ended", {"request_id": str(request_id), "well": True})
    assert (await routed(switchboard, request_id, "health"))["text"] == "second"
    await until("all of it is handed over", lambda: _is(switchboard, request_id, "health", "done"))


async def test_part_after_a_failed_part_is_not_sent_and_the_sender_is_notified(
    switchboard: InProcessButler,
) -> None:
    switchboard.butler.spawner.model = parts(
        {"butler": "tester", "part": "first"},
        {"butler": "health", "part": "second", "after_previous": True},
    )
    request_id = await ingest(switchboard, "first this, then that")
    await routed(switchboard, request_id, "tester")
    async with switchboard.peer("tester") as tester:
        await tester.call("route_ended", {"request_id": str(request_id), "well": False})
    await until("it is a dead letter", lambda: _is(switchboard, request_id, "health", "dead"))
    assert await switchboard.rows('SELECT 1 FROM "health".queue_items') == []

    async def notices() -> list[str]:
        rows = await switchboard.rows("SELECT payload FROM queue_items WHERE queue = 'notify'")
        return [json.loads(row["payload"])["message"] for row in rows]

    (message,) = await until("the sender to be notified", notices)
    assert "tester failed in the previous part" in message


async def test_split_message_reaches_each_butler_once_even_if_one_was_away(
    switchboard: InProcessButler,
) -> None:
    switchboard.butler.spawner.model = parts({"butler": "gone"}, {"butler": "health"})
    request_id = await ingest(switchboard, "both of you")
    await routed(switchboard, request_id, "health")

    async def tried_again() -> bool | None:
        return (await state_of(switchboard, request_id, "gone"))["fence"] > 1 or None

    await until("another attempt", tried_again)
    rows = await switchboard.rows(
        'SELECT 1 FROM "health".tool_calls WHERE tool = $1', "route.execute"
    )
    assert len(rows) == 1


async def test_waiting_part_blocks_only_later_messages_for_the_same_butler(
    switchboard: InProcessButler,
) -> None:
    switchboard.butler.spawner.model = parts({"butler": "gone"}, {"butler": "health"})
    first = await ingest(switchboard, "@gone first")
    split = await ingest(switchboard, "both of you")
    last = await ingest(switchboard, "@gone last")
    passing = await ingest(switchboard, "@health passing")
    await routed(switchboard, split, "health")
    await routed(switchboard, passing, "health")
    lane = (
        f"{(await switchboard.rows('SELECT conversation FROM message_inbox'))[0]['conversation']}"
    )

    async def in_line() -> list[str] | None:
        rows = await switchboard.rows(
            "SELECT key FROM queue_items WHERE lane = $1 ORDER BY id", joined(lane, "gone")
        )
        return [row["key"] for row in rows] if len(rows) == 3 else None

    assert await until("all for it in one line", in_line) == [
        str(first),
        f"{split}:gone",
        str(last),
    ]


async def test_messages_for_a_removed_butler_are_decided_again(
    switchboard: InProcessButler,
) -> None:
    request_id = await ingest(switchboard, "@gone and @health")

    async def waits() -> bool | None:
        return (
            "does not listen" in ((await state_of(switchboard, request_id))["error"] or "") or None
        )

    await until("it to wait", waits)
    async with switchboard.owner() as owner:
        done = await owner.call("registry_forget", {"name": "gone"})
        assert done == {"butler": "gone", "reopened": 1}
        await routed(switchboard, request_id, "health")
        with pytest.raises(NotFound, match="no butler 'gone'") as refused:
            await owner.call("registry_forget", {"name": "gone"})
    assert "health" in (refused.value.hint or "")


async def test_rule_for_a_removed_butler_is_ignored_and_the_owner_notified_once(
    switchboard: InProcessButler,
) -> None:
    rule = {"kind": "pattern", "value": "ship", "action": "route", "target": "gone"}
    async with switchboard.owner() as owner:
        await owner.call("rules_add", rule)
        before = await ingest(switchboard, "the first ship for @health")
        await owner.call("registry_forget", {"name": "gone"})
        after = [await ingest(switchboard, f"ship {number} for @health") for number in (2, 3)]
        for request_id in (before, *after):
            await routed(switchboard, request_id, "health")
        hops = (await owner.call("request_path", {"request_id": str(after[0])}))["hops"]
        explained = await owner.call("triage_explain", {"request_id": str(after[0])})
    (received,) = (hop for hop in hops if hop["hop"] == "received")
    assert "which is not registered any more" in received["state_reason"]
    (decided,) = (hop for hop in hops if hop["hop"] == "decided")
    assert (decided["target"], decided["rule"]) == ("health", "trigger")
    assert "there is no butler gone" in explained["now"][0]["found"]
    rows = await switchboard.rows("SELECT payload FROM queue_items WHERE queue = 'notify'")
    (notice,) = (json.loads(row["payload"])["message"] for row in rows)
    assert "does not exist any more" in notice
    assert "butlers rules remove" in notice


async def _is(tester: InProcessButler, request_id: UUID, part: str, state: str) -> bool | None:
    return (await state_of(tester, request_id, part))["state"] == state or None


async def test_butler_at_a_new_address_gets_what_waited(
    switchboard: InProcessButler,
) -> None:
    """Also without the flag that it is back: another process had used its name meanwhile."""
    request_id = await ingest(switchboard, "@gone later")

    async def waits() -> bool | None:
        return bool((await state_of(switchboard, request_id))["error"]) or None

    async def still_here(url: str) -> None:
        registration = {"name": "gone", "url": url, "description": "gone", "triggers": ["@gone"]}
        async with switchboard.peer("gone") as peer:
            await peer.call("register", {"registration": registration, "back": False})

    async def fence() -> int:
        return int((await state_of(switchboard, request_id))["fence"])

    await until("it to wait", waits)
    await switchboard.rows("UPDATE queue_items SET run_after = now() + interval '1 hour'")
    before = await fence()
    await still_here("http://127.0.0.1:9/mcp")
    assert await fence() == before
    await still_here("http://127.0.0.1:10/mcp")

    async def tried() -> bool | None:
        return await fence() > before or None

    await until("another attempt", tried)
