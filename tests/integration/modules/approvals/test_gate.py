"""Gated calls become questions, and an approved call runs once with the arguments that were shown."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import pytest

from butlers.domain.errors import ButlersError, InvalidArguments, NotAllowed, StateConflict
from butlers.tools.gate import CallGate
from integration.modules.approvals.conftest import decide, pending, stranger
from support.in_process import InProcessButler, MakeButler
from support.messages import request_context
from support.waiting import until


@pytest.mark.scenario("S001-09")
async def test_gated_call_waits_instead_of_running(gated: InProcessButler) -> None:
    async with gated.session(request=request_context()) as session:
        answer = await session.call("write", {"text": "milk"})
    assert answer["status"] == "pending_approval"
    assert answer["risk_tier"] == "low"
    assert await gated.count("entries") == 0
    assert gated.butler.services.find(CallGate).gated == {"write", "write_and_fail", "slow"}
    (action,) = await pending(gated)
    assert action["id"] == answer["action_id"]
    assert action["tool_args"] == {"text": "milk"}
    assert action["agent_summary"] == 'tester wants to use write: text "milk"'
    assert (action["risk_tier"], action["sender"], action["trust"]) == ("low", "owner", "owner")
    rows = await gated.rows("SELECT expires_at - requested_at AS open FROM pending_actions")
    assert rows[0]["open"].total_seconds() == 2 * 3600  # its own expiry_hours


async def test_owner_is_not_asked(gated: InProcessButler) -> None:
    async with gated.owner() as owner:
        assert (await owner.call("write", {"text": "mine"}))["number"] == 1
    assert await pending(gated) == []


async def test_approval_runs_the_call_once_and_keeps_the_result(gated: InProcessButler) -> None:
    async with gated.session(request=stranger()) as session:
        answer = await session.call("write", {"text": "milk"})
    done = await decide(gated, "approve_action", answer["action_id"])
    assert done["status"] == "executed"
    assert done["execution_result"]["result"]["text"] == "milk"
    again = await decide(gated, "approve_action", answer["action_id"])
    assert again["execution_result"] == done["execution_result"]
    assert await gated.count("entries") == 1
    journal = await gated.rows("SELECT request_id, tool FROM call_journal WHERE tool = 'write'")
    assert {str(row["request_id"]) for row in journal} >= {answer["action_id"]}
    with pytest.raises(StateConflict, match="executed already"):
        await decide(gated, "reject_action", answer["action_id"])
    (told,) = await _replies(gated)
    assert "approved this, and it is done" in told["message"]


async def test_rejected_call_never_runs(gated: InProcessButler) -> None:
    async with gated.session(request=stranger()) as session:
        answer = await session.call("write", {"text": "milk"})
    await decide(gated, "reject_action", answer["action_id"], reason="no")
    with pytest.raises(StateConflict, match="rejected already"):
        await decide(gated, "approve_action", answer["action_id"])
    assert await gated.count("entries") == 0
    (told,) = await _replies(gated)
    assert "declined" in told["message"]
    shown = await decide(gated, "show_pending_action", answer["action_id"])
    assert [one["event"] for one in shown["events"]] == ["action_queued", "action_rejected"]


async def test_failed_call_leaves_its_error_and_nothing_else(gated: InProcessButler) -> None:
    async with gated.session(uuid4()) as session:
        answer = await session.call("write_and_fail", {"text": "milk"})
    done = await decide(gated, "approve_action", answer["action_id"])
    assert done["execution_result"] == {"success": False, "error": "there is no such shelf"}
    assert await gated.count("entries") == 0
    shown = await decide(gated, "show_pending_action", answer["action_id"])
    assert shown["events"][-1]["event"] == "action_execution_failed"


async def test_call_without_a_transaction_runs_after_the_decision(gated: InProcessButler) -> None:
    gated.open_gate()
    async with gated.session(uuid4()) as session:
        answer = await session.call("slow", {"label": "x"})
    assert answer["status"] == "pending_approval"
    assert (await decide(gated, "approve_action", answer["action_id"]))["status"] == "approved"

    async def ended() -> Any:
        shown = await decide(gated, "show_pending_action", answer["action_id"])
        return shown["execution_result"]

    assert await until("the call to end", ended) == {"success": True, "result": {"label": "x"}}


async def test_repeated_call_of_a_request_is_one_question(gated: InProcessButler) -> None:
    request = request_context()
    answers = []
    for _run in range(2):  # the second session continues the first
        async with gated.session(request=request) as session:
            answers += [await session.call("write", {"text": "milk"}) for _time in range(2)]
    assert len({answer["action_id"] for answer in answers}) == 1
    assert len(await pending(gated)) == 1


async def test_sessions_and_peers_cannot_decide(gated: InProcessButler) -> None:
    async with gated.session(uuid4()) as session:
        answer = await session.call("write", {"text": "milk"})
        for tool in ("approve_action", "reject_action", "list_pending_actions"):
            with pytest.raises(ButlersError):
                await session.call(tool, {"action_id": answer["action_id"]})
    async with gated.peer("health") as peer:
        with pytest.raises(NotAllowed):
            await peer.call("approve_action", {"action_id": answer["action_id"]})
    async with gated.peer("switchboard") as peer:  # passes on the owner's words
        done = await peer.call("approve_action", {"action_id": answer["action_id"][-6:]})
    assert done["decided_by"] == "owner (chat)"


async def test_invalid_call_is_refused_and_not_asked_about(gated: InProcessButler) -> None:
    async with gated.session(uuid4()) as session:
        for arguments in ({}, {"text": "x", "more": 1}):
            with pytest.raises(InvalidArguments):
                await session.call("write", arguments)
    assert await pending(gated) == []


async def test_unknown_gated_tool_stops_the_start(make_butler: MakeButler) -> None:
    made = make_butler(extra="[modules.approvals.gated_tools.wrte]\n")
    with pytest.raises(ButlersError, match="no tool 'wrte'"):
        await made.start()


async def test_session_cannot_fill_the_list(gated: InProcessButler) -> None:
    async with gated.session(uuid4()) as session:
        for number in range(20):
            await session.call("write", {"text": f"{number}"})
        with pytest.raises(NotAllowed, match="20 calls of this session wait"):
            await session.call("write", {"text": "one more"})
    assert len(await pending(gated)) == 20


async def _replies(butler: InProcessButler) -> list[dict[str, Any]]:
    rows = await butler.rows("SELECT payload FROM queue_items WHERE queue = 'notify' ORDER BY id")
    found = [json.loads(row["payload"]) for row in rows]
    return [one for one in found if one["target"] == "console:bob"]
