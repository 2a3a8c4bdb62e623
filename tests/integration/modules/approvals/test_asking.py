"""How the owner is asked: together, seldom, never at night, and every question exactly once."""

from __future__ import annotations

import json
import random
from collections import Counter
from datetime import UTC, datetime
from statistics import median
from typing import Any
from uuid import uuid4

import pytest

from butlers.modules.approvals.notices import ApprovalNotices
from integration.modules.approvals.conftest import GATED, SWITCHBOARD, decide, pending, stranger
from support.clocks import SetClock
from support.in_process import InProcessButler, MakeButler
from support.messages import request_context
from support.waiting import until

CONFIG = """
[modules.approvals]
quiet_interval_minutes = 180
quiet_hours = "22:00-07:00"
digest_at = "18:00"
"""
# Medium unless said otherwise; "write" is of low risk.
TIERS = {"write_null": "medium", "write_list": "high", "write_nested": "critical", "write": "low"}
TOOLS = "\n".join(
    f'[modules.approvals.gated_tools.{tool}]\nrisk_tier = "{tier}"\n'
    for tool, tier in TIERS.items()
)
NOON = datetime(2026, 5, 4, 12, tzinfo=UTC)


class Asked:
    """A butler on a clock of the test, and the notifications that it queued."""

    def __init__(self, made: InProcessButler, clock: SetClock) -> None:
        self.made, self.clock = made, clock

    async def call(self, tool: str, text: str, request: Any = None) -> str:
        asker = {"request": request} if request else {"request_id": uuid4()}
        async with self.made.session(**asker) as session:
            return str((await session.call(tool, {"text": text}))["action_id"])

    async def send(self) -> None:
        await self.made.butler.service(ApprovalNotices).send()

    async def notices(self) -> list[dict[str, Any]]:
        rows = await self.made.rows(
            "SELECT payload FROM queue_items WHERE queue = 'notify' ORDER BY id"
        )
        return [json.loads(row["payload"]) for row in rows]

    async def texts(self) -> list[str]:
        return [one["message"] for one in await self.notices()]


@pytest.fixture
async def asked(make_butler: MakeButler) -> Asked:
    made = make_butler(extra=f"{SWITCHBOARD}{CONFIG}{TOOLS}")
    clock = SetClock(NOON)
    await made.make(clock=clock).start()
    return Asked(made, clock)


async def test_equal_questions_are_one_notification(asked: Asked) -> None:
    for number in range(3):
        await asked.call("write_null", f"to Anna {number}", stranger("anna"))
    await asked.send()
    (text,) = await asked.texts()
    assert "3 of this kind" in text
    assert text.count("wants to use write_null") == 1
    await asked.send()
    assert len(await asked.texts()) == 1


async def test_one_notification_per_quiet_interval(asked: Asked) -> None:
    await asked.call("write_null", "first")
    await asked.send()
    await asked.call("write_list", "second")
    asked.clock.move(minutes=10)
    await asked.send()
    assert len(await asked.texts()) == 1
    asked.clock.move(minutes=171)
    await asked.send()
    first, second = await asked.texts()
    assert "first" in first
    assert "second" in second


async def test_critical_question_does_not_wait(asked: Asked) -> None:
    await asked.call("write_null", "first")
    await asked.send()
    await asked.call("write_nested", "now")
    await asked.send()
    assert len(await asked.texts()) == 2


async def test_question_in_a_conversation_is_asked_there_with_buttons(asked: Asked) -> None:
    action = await asked.call("write_null", "mine", request_context("thread-1"))
    await asked.send()
    (question,) = await asked.notices()
    assert (question["intent"], question["thread"]) == ("reply", "thread-1")
    code = action.replace("-", "")[-6:]
    assert question["actions"] == [
        {"label": "Yes", "value": f"/yes {code}"},
        {"label": "No", "value": f"/no {code}"},
    ]


async def test_low_risk_waits_for_the_digest(asked: Asked) -> None:
    await asked.call("write", "small")
    await asked.send()
    asked.clock.move(hours=5, minutes=59)
    await asked.send()
    assert await asked.texts() == []
    asked.clock.move(minutes=2)
    await asked.send()
    assert len(await asked.texts()) == 1


async def test_digest_that_a_restart_missed_is_made_up_for(asked: Asked) -> None:
    await asked.call("write", "small")
    await asked.made.butler.stop()
    asked.clock.move(hours=6, minutes=30)  # the butler was off at 18:00
    await asked.made.make(clock=asked.clock).start()
    await asked.send()
    # The loop of the started butler may be asking at the same moment, and then it is the one that asks.
    (text,) = await until("the digest", asked.texts)
    assert "small" in text


async def test_nothing_is_asked_in_quiet_hours(asked: Asked) -> None:
    asked.clock.move(hours=11)
    await asked.call("write_nested", "at night")
    await asked.send()
    assert await asked.texts() == []
    asked.clock.move(hours=8, minutes=1)
    await asked.send()
    assert len(await asked.texts()) == 1


async def test_expiry_is_told_to_owner_and_asker(asked: Asked) -> None:
    await asked.call("write_null", "late", stranger())
    await asked.send()
    asked.clock.move(hours=48)
    await asked.send()
    texts = await asked.texts()
    assert "Nobody decided this in time" in texts[-1]
    assert any("did not decide in time" in text for text in texts)
    await asked.send()
    assert await asked.texts() == texts


async def test_busy_fortnight(asked: Asked) -> None:
    """Two weeks, seeded: at most 5 notifications a day, none lost, one tap for a decision."""
    chance = random.Random(17)
    days, taps, questions = Counter[str](), list[int](), list[str]()
    seen = 0
    for _day in range(14):
        for _hour in range(24):
            for _call in range(chance.choice((0, 0, 1, 2)) if 7 <= asked.clock.at.hour < 23 else 0):
                tool = chance.choices(list(TIERS), (6, 2, 0, 4))[0]
                who = chance.choice(("anna", "ben", "carol"))
                questions.append(await asked.call(tool, f"{chance.random()}", stranger(who)))
            await asked.send()
            notices = [one for one in await asked.notices() if one["intent"] == "send"]
            days[f"{asked.clock.at:%Y-%m-%d}"] += len(notices) - seen
            if len(notices) > seen and chance.random() < 0.8:  # the owner looks, and answers all
                for action in await pending(asked.made, limit=500):
                    tool = chance.choice(("approve_action", "approve_action", "reject_action"))
                    await decide(asked.made, tool, action["id"])
                    taps.append(1)
            seen = len(notices)
            asked.clock.move(hours=1)
    asked.clock.move(hours=72)
    await asked.send()
    asked.clock.move(hours=24)
    await asked.send()
    assert max(days.values()) <= 5
    assert median(taps) == 1
    rows = await asked.made.rows("SELECT status, asked_at, told_at FROM pending_actions")
    assert len(rows) == len(questions) > 100
    for row in rows:
        assert row["status"] in ("executed", "rejected", "expired")
        assert row["status"] != "expired" or row["told_at"]


async def test_notices_of_two_butlers_share_the_interval(asked: Asked) -> None:
    await asked.call("write_null", "first")
    await asked.send()
    async with asked.made.butler.database.transaction() as connection:
        taken = await connection.fetchval(
            "SELECT shared.take_question_turn($1, interval '3 hours')", asked.clock.at
        )
    assert taken is False  # another butler of the fleet would have to wait


async def test_chat_suggestions_and_always(make_butler: MakeButler) -> None:
    """Approve and always: the narrowest rule, what else it would have admitted, and suggestions."""
    made = make_butler(extra=f"{SWITCHBOARD}{GATED}")
    await made.start()
    asked = Asked(made, SetClock())
    for text in ("milk", "milk", "milk", "tea"):
        last = await asked.call("write", text)
        await decide(made, "approve_action", last)
    async with made.owner() as owner:
        (found,) = (await owner.call("suggest_rule_constraints", {}))["suggestions"]
        assert found["arg_constraints"] == {"text": {"type": "exact", "value": "milk"}}
        assert len(found["would_have_admitted"]) == 2
        assert (await owner.call("list_approval_rules"))["rules"] == []  # never made by itself
    action = await asked.call("write", "milk")
    done = await decide(made, "approve_action", action, create_rule=True)
    assert done["approval_rule_id"]
    async with made.session(uuid4()) as session:
        assert "number" in await session.call("write", {"text": "milk"})
        assert (await session.call("write", {"text": "tea"}))["status"] == "pending_approval"
        assert (await session.call("write", {"text": "milk\n"}))["status"] == "pending_approval"
    async with made.session(request=stranger()) as session:  # the rule is for trusted calls
        assert (await session.call("write", {"text": "milk"}))["status"] == "pending_approval"
    async with made.owner() as owner:
        await owner.call("revoke_approval_rule", {"rule_id": done["approval_rule_id"]})
    async with made.session(uuid4()) as session:
        assert (await session.call("write", {"text": "milk"}))["status"] == "pending_approval"
