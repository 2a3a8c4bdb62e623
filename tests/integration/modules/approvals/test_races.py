"""Races around a decision end in exactly one outcome."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID, uuid4

import pytest

from butlers.domain.errors import ButlersError, NeedsApproval, StateConflict
from butlers.modules.approvals import actions
from butlers.modules.approvals.actions import ActionExpired
from butlers.modules.approvals.decisions import EXECUTIONS
from butlers.queue import leased_queue as queue
from integration.modules.approvals.conftest import GATED, SWITCHBOARD, decide, pending, stranger
from support.clocks import LeapClock
from support.in_process import InProcessButler, MakeButler
from support.waiting import until

ANY_TEXT = {"text": {"type": "any"}}


async def ask(butler: InProcessButler, text: str = "milk") -> str:
    async with butler.session(uuid4()) as session:
        answer = await session.call("write", {"text": text})
    return str(answer["action_id"])


async def outcome(butler: InProcessButler, tool: str, action: str) -> str:
    try:
        return str((await decide(butler, tool, action))["status"])
    except ButlersError as error:
        return type(error).__name__


async def test_two_deciders_are_one_decision(gated: InProcessButler) -> None:
    for number in range(6):
        action = await ask(gated, f"{number}")
        tools = ["approve_action", "reject_action"] * 2
        found = await asyncio.gather(*(outcome(gated, tool, action) for tool in tools))
        shown = await decide(gated, "show_pending_action", action)
        done = await gated.rows("SELECT 1 FROM entries WHERE text = $1", f"{number}")
        if shown["status"] == "executed":
            assert found == ["executed", "AlreadyDecided"] * 2
            assert len(done) == 1
        else:
            assert shown["status"] == "rejected"
            assert found == ["AlreadyDecided", "rejected"] * 2
            assert not done
        decided = [one["event"] for one in shown["events"]]
        assert sum(event in ("action_approved", "action_rejected") for event in decided) == 1


async def test_expiry_and_approval_are_one_outcome(make_butler: MakeButler) -> None:
    made = make_butler(extra=f"{SWITCHBOARD}{GATED}")
    clock = LeapClock()
    await made.make(clock=clock).start()
    action = await ask(made)
    clock.leap(hours=2, seconds=1)
    with pytest.raises(ActionExpired):
        await decide(made, "approve_action", action)  # late, although nobody has marked it yet
    async with made.owner() as owner:
        expired = asyncio.gather(*(owner.call("expire_stale_actions") for _time in range(3)))
        found = [one for answer in await expired for one in answer["expired"]]
    assert found in ([action], [])  # the butler's own loop may have been first
    shown = await decide(made, "show_pending_action", action)
    assert shown["status"] == "expired"
    assert [one["event"] for one in shown["events"]] == ["action_queued", "action_expired"]
    assert await made.count("entries") == 0


async def test_last_use_of_a_rule_is_one_call(gated: InProcessButler) -> None:
    async with gated.owner() as owner:
        rule = await owner.call(
            "create_approval_rule",
            {
                "tool_name": "write",
                "arg_constraints": ANY_TEXT,
                "description": "Write anything, twice.",
                "max_uses": 2,
            },
        )

    async def call(number: int) -> dict[str, Any]:
        async with gated.session(uuid4()) as session:
            answer: dict[str, Any] = await session.call("write", {"text": f"{number}"})
            return answer

    answers = await asyncio.gather(*(call(number) for number in range(8)))
    assert sum("number" in answer for answer in answers) == 2
    assert await gated.count("entries") == 2
    assert len(await pending(gated)) == 6
    (row,) = await gated.rows(
        "SELECT use_count FROM approval_rules WHERE id = $1", UUID(rule["id"])
    )
    assert row["use_count"] == 2


async def test_failed_call_gives_the_use_of_its_rule_back(gated: InProcessButler) -> None:
    async with gated.owner() as owner:
        await owner.call(
            "create_approval_rule",
            {
                "tool_name": "write_and_fail",
                "arg_constraints": {"text": {"type": "pattern", "value": "m*"}},
                "description": "Try it.",
                "max_uses": 1,
            },
        )
    async with gated.session(uuid4()) as session:
        for _time in range(2):
            with pytest.raises(ButlersError, match="no such shelf"):
                await session.call("write_and_fail", {"text": "milk"})
    (row,) = await gated.rows("SELECT use_count FROM approval_rules")
    assert row["use_count"] == 0


async def test_decision_during_a_stop_is_whole_or_absent(gated: InProcessButler) -> None:
    action = await ask(gated)
    deciding = asyncio.create_task(outcome(gated, "approve_action", action))
    await gated.butler.stop()
    found = await deciding
    await gated.start()
    shown = await decide(gated, "show_pending_action", action)
    entries = await gated.count("entries")
    assert (shown["status"], entries) in (("executed", 1), ("pending", 0))
    assert found == "executed" or entries == 0
    await decide(gated, "approve_action", action)
    assert await gated.count("entries") == 1


async def test_interrupted_long_call_is_not_run_again(gated: InProcessButler) -> None:
    """As after a kill between the start of the call and its result."""
    async with gated.session(request=stranger()) as session:
        answer = await session.call("slow", {"label": "x"})
    action_id = UUID(answer["action_id"])
    async with gated.butler.database.transaction() as connection:
        now = gated.butler.clock.now()
        decided = actions.ActionStatus.APPROVED
        await actions.decide_action(connection, action_id, decided, "owner", now)
        assert await actions.begin_execution(connection, action_id, now)
        payload = {"action_id": str(action_id)}
        await queue.enqueue(connection, EXECUTIONS, str(action_id), payload)

    async def ended() -> Any:
        return (await decide(gated, "show_pending_action", action_id))["execution_result"]

    result = await until("the result", ended)
    assert "not known" in result["error"]
    assert gated.bench().running == []


async def test_changed_arguments_are_refused(gated: InProcessButler) -> None:
    action = await ask(gated)
    with pytest.raises(StateConflict, match="not those that were shown"):
        await decide(gated, "approve_action", action, args_hash="0" * 64)
    assert await gated.count("entries") == 0


async def test_many_deletions_wait(make_butler: MakeButler) -> None:
    """A call of a session that deletes more than a few records is undone and asked about."""
    made = make_butler(extra=f"{SWITCHBOARD}[modules.approvals]\n", tools=DELETING)
    await made.start()
    async with made.butler.database.transaction() as connection:
        await connection.execute("CREATE TABLE things (id uuid PRIMARY KEY, label text)")
        await connection.execute("SELECT make_record_table('things', '{label}')")
        await connection.execute(
            "INSERT INTO things SELECT gen_random_uuid(), n::text FROM generate_series(1, 8) AS n"
        )
    async with made.session(uuid4()) as session:
        assert (await session.call("clear", {"count": 2}))["deleted"] == 2
        answer = await session.call("clear", {"count": 6})
    assert answer["status"] == "pending_approval"
    assert await made.count("things") == 6
    (action,) = await pending(made)
    assert action["agent_summary"].startswith("tester wants to delete 6 records")
    done = await decide(made, "approve_action", action["id"])
    assert await made.count("things") == 0
    await decide(made, "undo_action", done["id"])
    assert await made.count("things") == 6


def test_refusal_is_typed() -> None:
    error = NeedsApproval("no", action="spend money", why="it costs")
    assert (error.code, error.action, error.why) == ("needs_approval", "spend money", "it costs")


DELETING = '''
"""A tool that deletes records."""

from __future__ import annotations

from typing import Any

from butlers.sdk import SESSIONS, CallContext, Module, tool


@tool(callers=SESSIONS)
async def clear(ctx: CallContext, count: int) -> dict[str, Any]:
    """Delete things."""
    rows = await ctx.connection.fetch(
        "DELETE FROM things WHERE id IN (SELECT id FROM things LIMIT $1) RETURNING id", count
    )
    return {"deleted": len(rows)}


class Clearing(Module):
    name = "bench"
    tools = (clear,)
'''
