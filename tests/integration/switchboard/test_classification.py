"""Classification: a session is asked only if no cheaper step decides, and only its tool decides."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from butlers.domain.errors import ButlersError, NotFound
from butlers.wire.client import McpClient
from support.fake_runtime import FakeRuntime, unreached
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


async def decided(tester: InProcessButler, text: str) -> tuple[str, str, str]:
    async with tester.owner() as owner:
        request_id = UUID((await owner.call("ingest", envelope(text)))["request_id"])

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
    assert (await decided(switchboard, "hello?"))[:2] == ("general", "fallback")
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
    assert (await decided(switchboard, "hello?"))[:2] == ("general", "fallback")


async def test_failed_or_silent_classification_falls_back(switchboard: InProcessButler) -> None:
    async def fail(_butler: McpClient) -> str:
        raise ButlersError("no model today")

    for think in (unreached, fail):
        switchboard.butler.spawner.model = FakeRuntime(think)
        assert (await decided(switchboard, "hello?"))[:2] == ("general", "fallback")


async def test_classification_that_broke_off_after_one_part_is_withdrawn(
    switchboard: InProcessButler,
) -> None:
    """Keeping one part would lose the others."""

    async def think(butler: McpClient) -> str:
        await butler.call("assign", {"butler": "travel", "reason": "one of two", "part": "half"})
        raise ButlersError("cut off")

    switchboard.butler.spawner.model = FakeRuntime(think)
    assert (await decided(switchboard, "two things"))[:2] == ("general", "fallback")


async def test_decision_is_made_once(switchboard: InProcessButler) -> None:
    """A second run of a message, or a late model, finds the decision made."""

    async def think(butler: McpClient) -> str:
        await butler.call("assign", {"butler": "travel", "reason": "first"})
        return ""

    switchboard.butler.spawner.model = FakeRuntime(think)
    assert await decided(switchboard, "hello?") == ("travel", "classified", "first")
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
