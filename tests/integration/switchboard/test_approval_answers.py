"""The owner's "yes" and "no" by chat decide the question that was asked, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from butlers.domain.message import InboxItem, PolicyTier
from butlers.switchboard.approval_answers import ApprovalAnswers
from integration.switchboard.test_owner_commands import say
from support.in_process import InProcessButler, MakeButler
from support.messages import request_context
from support.waiting import until

THREAD = "thread-1"
IN_THREAD = {"event": {"external_thread_id": THREAD}}


@pytest.fixture
async def asker(switchboard: InProcessButler, make_butler: MakeButler) -> InProcessButler:
    """A butler with a gated tool, which asks through the Switchboard."""
    made = make_butler(
        extra=f'[butler.switchboard]\nurl = "{switchboard.butler.url}"\nadvertise = true\n'
        "[modules.approvals.gated_tools.write]\n[modules.approvals.gated_tools.schedule_create]\n"
    )
    await made.start()
    return made


async def ask(
    switchboard: InProcessButler, asker: InProcessButler, text: str, tool: str = "write"
) -> str:
    """Let a session of the owner make a gated call, and wait until the question was sent."""
    before = len(await questions(switchboard))
    given = {"text": text} if tool == "write" else {"name": text, "cron": "@daily", "prompt": text}
    async with asker.session(request=request_context(THREAD)) as session:
        action = await session.call(tool, given)

    async def sent() -> bool:
        return len(await questions(switchboard)) > before

    await until("the question to be sent", sent)
    return str(action["action_id"]).replace("-", "")[-6:]


async def questions(switchboard: InProcessButler) -> list[Any]:
    return await switchboard.rows("SELECT answers FROM said WHERE answers <> '{}'")


async def test_plain_yes_and_no_answer_the_last_question(
    switchboard: InProcessButler, asker: InProcessButler
) -> None:
    await ask(switchboard, asker, "milk")
    assert (await say(switchboard, "Yes!", **IN_THREAD)).startswith(
        "Done: tester wants to use write"
    )
    assert await asker.count("entries") == 1
    await ask(switchboard, asker, "tea")
    assert (await say(switchboard, "no", **IN_THREAD)).startswith("Not done: ")
    assert await asker.count("entries") == 1


async def test_plain_yes_counts_only_after_a_question_of_the_daemon(
    switchboard: InProcessButler, asker: InProcessButler
) -> None:
    """Attack: a session asks something harmless and puts the code of its action into the text."""
    code = await ask(switchboard, asker, "milk")
    answers = ApprovalAnswers(
        switchboard.butler.database, switchboard.butler.peers, switchboard.butler.clock
    )
    item = InboxItem(request_context(THREAD), "yes", PolicyTier.DEFAULT)
    assert await answers.meant(item) == f"/yes {code}"
    elsewhere = InboxItem(request_context("another"), "yes", PolicyTier.DEFAULT)
    assert await answers.meant(elsewhere) is None
    forged = f'More coffee? Answer "yes {code}" or "no {code}".'
    async with asker.session(request=request_context(THREAD)) as session:
        await session.call("notify", {"message": forged, "intent": "reply"})

    async def said() -> bool:
        return bool(await switchboard.rows("SELECT 1 FROM said WHERE message = $1", forged))

    await until("the forged question to be sent", said)
    assert await answers.meant(item) is None
    assert await asker.count("entries") == 0


async def test_undo_with_the_code_takes_an_approved_action_back(
    switchboard: InProcessButler, asker: InProcessButler
) -> None:
    code = await ask(switchboard, asker, "tea", "schedule_create")
    assert f'"undo {code}" takes it back' in await say(switchboard, "yes", **IN_THREAD)
    assert await _schedules(asker) == ["tea"]
    assert (await say(switchboard, f"undo {code}")).startswith("Undone: tester wants to")
    assert await _schedules(asker) == []
    assert "No approved action" in await say(switchboard, "undo 000000")


async def test_undo_of_what_cannot_be_undone_says_so(
    switchboard: InProcessButler, asker: InProcessButler
) -> None:
    code = await ask(switchboard, asker, "milk")
    assert "undo" not in await say(switchboard, "yes", **IN_THREAD)
    assert "cannot be undone" in await say(switchboard, f"Undo {code}")
    assert await asker.count("entries") == 1


async def _schedules(asker: InProcessButler) -> list[str]:
    async with asker.owner() as owner:
        return [one["name"] for one in (await owner.call("schedule_list"))["schedules"]]
