"""Classification: a session is asked only if no cheaper step decides, and only its tool decides."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from butlers.domain.errors import ButlersError, NotFound
from butlers.domain.session import Outcome
from butlers.runtimes.failures import STOPPED
from butlers.wire.client import McpClient
from support.fake_runtime import FakeRuntime, for_ever, nothing
from support.in_process import InProcessButler
from support.messages import envelope, request_context
from support.waiting import until

BUTLERS: dict[str, dict[str, Any]] = {
    "health": {"description": "Keeps measurements.", "reflexes": ["(?i)weight .*"]},
    "travel": {"description": "Knows trips."},
    "general": {"description": "Everything else."},
    "messenger": {"description": "The way out.", "infrastructure": True},
}


@pytest.fixture
async def switchboard(switchboard: InProcessButler) -> InProcessButler:
    for name, more in BUTLERS.items():
        known = {"name": name, "url": "http://127.0.0.1:9/mcp", **more}
        async with switchboard.peer(name) as peer:
            await peer.call("register", {"registration": known})
    return switchboard


async def decided(tester: InProcessButler, text: str, **changes: Any) -> tuple[str, str, str]:
    async with tester.owner() as owner:
        request_id = UUID((await owner.call("ingest", envelope(text, **changes)))["request_id"])

    async def look() -> list[dict[str, Any]]:
        return await tester.rows(
            "SELECT target, rule, reason FROM route_decisions JOIN message_inbox USING (request_id)"
            " WHERE request_id = $1 AND message_inbox.decided_at IS NOT NULL",
            request_id,
        )

    (row,) = await until("a decision", look)
    return row["target"], row["rule"], row["reason"]


async def test_classification_session_decides_the_target(switchboard: InProcessButler) -> None:
    async def think(butler: McpClient) -> str:
        assert {tool["name"] for tool in await butler.list_tools()} == {"assign"}
        await butler.call("assign", {"butler": "travel", "reason": "it speaks of a flight"})
        return ""

    switchboard.butler.spawner.model = model = FakeRuntime(think)
    found = await decided(switchboard, "when is my flight to Lisbon?")
    assert found == ("travel", "classified", "it speaks of a flight")
    (asked,) = model.asked
    assert "- travel: Knows trips." in asked.prompt
    assert "messenger" not in asked.prompt
    assert "when is my flight to Lisbon?" in asked.prompt
    assert "notify" not in asked.prompt, "it is not to be answered here"
    assert asked.terms.grants.access == "sealed"


async def test_reflex_match_needs_no_classification(switchboard: InProcessButler) -> None:
    switchboard.butler.spawner.model = model = FakeRuntime()
    target, rule, _ = await decided(switchboard, "weight 80 kg")
    assert (target, rule, model.asked) == ("health", "reflex", [])


async def test_without_a_model_the_general_butler_gets_the_message(
    switchboard: InProcessButler,
) -> None:
    assert (await decided(switchboard, "what is love?"))[:2] == ("general", "fallback")
    assert await switchboard.count("sessions") == 0


@pytest.mark.parametrize("name", ["nobody", "messenger", "switchboard"])
async def test_infrastructure_butlers_cannot_be_assigned(
    switchboard: InProcessButler, name: str
) -> None:
    async def think(butler: McpClient) -> str:
        with pytest.raises(NotFound, match=name) as refused:
            await butler.call("assign", {"butler": name, "reason": "why not"})
        assert "travel" in (refused.value.hint or "")
        return ""

    switchboard.butler.spawner.model = FakeRuntime(think)
    assert (await decided(switchboard, "what is love?"))[:2] == ("general", "fallback")


async def test_classification_without_a_decision_goes_to_the_general_butler(
    switchboard: InProcessButler,
) -> None:
    switchboard.butler.spawner.model = FakeRuntime(nothing)
    assert (await decided(switchboard, "what is love?"))[:2] == ("general", "fallback")


async def test_classification_waits_for_a_model_that_is_away(switchboard: InProcessButler) -> None:
    """The message is not given to the general butler for good."""

    async def think(butler: McpClient) -> str:
        if len(model.asked) < 3:
            await butler.call("assign", {"butler": "health", "reason": "half a thought"})
            model.outcome = Outcome.MODEL_UNAVAILABLE
        else:
            await butler.call("assign", {"butler": "travel", "reason": "it is back"})
            model.outcome = Outcome.OK
        return ""

    switchboard.butler.spawner.model = model = FakeRuntime(think)
    assert await decided(switchboard, "what is love?") == ("travel", "classified", "it is back")
    assert len(model.asked) == 3


async def test_rejected_classification_is_a_dead_letter(switchboard: InProcessButler) -> None:
    async def think(butler: McpClient) -> str:
        await butler.call("assign", {"butler": "travel", "reason": "one of two", "part": "half"})
        return "Let me see."

    switchboard.butler.spawner.model = FakeRuntime(think, outcome=Outcome.REJECTED)
    async with switchboard.owner() as owner:
        await owner.call("ingest", envelope("two things"))

    async def dead() -> list[dict[str, Any]]:
        return await switchboard.rows(
            "SELECT error FROM queue_items WHERE queue = 'inbox' AND state = 'dead'"
        )

    ((row),) = await until("a dead letter", dead)
    assert row["error"] == "it ended as rejected"
    assert await switchboard.rows("SELECT * FROM route_decisions") == [], "no part is kept"


async def test_stop_during_classification_ends_the_message(switchboard: InProcessButler) -> None:
    switchboard.butler.spawner.model = model = FakeRuntime(for_ever)
    async with switchboard.owner() as owner:
        await owner.call("ingest", envelope("what is love?"))
        await until("the session to think", lambda: model.asked or None)
        await owner.call("ingest", envelope("/stop"))

    async def done() -> list[dict[str, Any]]:
        return await switchboard.rows(
            "SELECT result FROM queue_items WHERE queue = 'inbox' AND state = 'done'"
        )

    (row,) = await until("the message to end", done)
    assert json.loads(row["result"]) == {"outcome": "cancelled", "targets": []}
    assert await switchboard.rows("SELECT * FROM route_decisions") == [], "nobody answers it"
    said = await switchboard.rows(
        "SELECT payload->>'message' AS text FROM queue_items WHERE queue = 'notify'"
    )
    assert STOPPED in {row["text"] for row in said}


async def test_reflex_does_not_wait_behind_a_classification(switchboard: InProcessButler) -> None:
    """Neither in the same conversation, nor when more messages wait for a session than there are workers."""
    released = asyncio.Event()

    async def think(butler: McpClient) -> str:
        await released.wait()
        await butler.call("assign", {"butler": "travel", "reason": "late"})
        return ""

    switchboard.butler.spawner.model = model = FakeRuntime(think)
    try:
        async with switchboard.owner() as owner:
            for number in range(20):
                thread = {"external_thread_id": f"thread {number // 2}"}
                await owner.call("ingest", envelope(f"slow {number}", event=thread))
        await until("a session to think", lambda: model.asked or None)
        same = {"external_thread_id": "thread 0"}
        for event in ({}, same):
            found = await decided(switchboard, "weight 80 kg", event=event)
            assert found[:2] == ("health", "reflex")
        assert not [
            row
            for row in await switchboard.rows("SELECT rule FROM route_decisions")
            if row["rule"] != "reflex"
        ]
    finally:
        released.set()

    async def all_decided() -> bool:
        rows = await switchboard.rows("SELECT target FROM route_decisions")
        return [row["target"] for row in rows].count("travel") == 20

    await until("the others to be classified", all_decided)


async def test_decision_is_made_once(switchboard: InProcessButler) -> None:
    """A second run of a message, or a late model, finds the decision made."""

    async def think(butler: McpClient) -> str:
        await butler.call("assign", {"butler": "travel", "reason": "first"})
        return ""

    switchboard.butler.spawner.model = FakeRuntime(think)
    assert await decided(switchboard, "what is love?") == ("travel", "classified", "first")
    (row,) = await switchboard.rows("SELECT request_id FROM message_inbox")
    late = replace(request_context(), request_id=row["request_id"])
    async with switchboard.session(request=late) as session:
        answer = await session.call("assign", {"butler": "health", "reason": "late"})
    assert not answer["added"]
    assert [
        one["target"] for one in await switchboard.rows("SELECT target FROM route_decisions")
    ] == ["travel"]


async def test_only_classification_sessions_may_assign(switchboard: InProcessButler) -> None:
    async with switchboard.owner() as owner, switchboard.peer("health") as peer:
        for client in (owner, peer):
            with pytest.raises(ButlersError, match="may not call assign"):
                await client.call("assign", {"butler": "health", "reason": "mine"})
