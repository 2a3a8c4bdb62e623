"""The day's budget: reserved before, settled after, and at its end nothing is lost and nothing is silent."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from structlog.testing import capture_logs

from butlers.config.butler import BudgetConfig
from butlers.config.prices import load_prices
from butlers.config.settings import Settings
from butlers.domain.clock import uuid7
from butlers.domain.errors import OverBudget
from butlers.domain.message import RequestContext, RouteDecision, RouteRequest
from butlers.domain.session import SessionRequest, Usage
from butlers.sessions.budget import RESERVED, Budget
from butlers.sessions.routes import accept_route
from butlers.wire.client import McpClient
from support.fake_runtime import FakeRuntime
from support.in_process import InProcessButler, MakeButler
from support.waiting import until

EACH = (RESERVED.input_tokens or 0) + (RESERVED.output_tokens or 0)


def asked() -> SessionRequest:
    return SessionRequest(uuid7(), "think", "trigger")


async def open_house(make_butler: MakeButler, budget: str) -> InProcessButler:
    tester = make_butler(extra=f"[butler.budget]\n{budget}\n")
    await tester.start()
    return tester


async def outcomes(tester: InProcessButler) -> list[str | None]:
    rows = await tester.rows("SELECT outcome FROM sessions ORDER BY started_at, id")
    return [row["outcome"] for row in rows]


async def test_usage_replaces_the_reservation(
    make_butler: MakeButler,
) -> None:
    tester = await open_house(make_butler, f"daily_tokens = {EACH + 1_000}")
    tester.butler.spawner.model = FakeRuntime(usage=Usage(900, 100, 0))
    await tester.butler.spawner.run(asked())
    await tester.butler.spawner.run(asked())
    with pytest.raises(OverBudget, match="2,000 so far") as refused:
        await tester.butler.spawner.run(asked())
    assert refused.value.hint
    assert not refused.value.retryable
    assert await outcomes(tester) == ["ok", "ok", "over-budget"]


async def test_two_sessions_cannot_both_take_the_last_of_a_budget(make_butler: MakeButler) -> None:
    tester = await open_house(make_butler, f"daily_tokens = {EACH}")
    gate = asyncio.Event()

    async def think(_butler: McpClient) -> str:
        await gate.wait()
        return "done"

    tester.butler.spawner._slots = asyncio.Semaphore(5)
    tester.butler.spawner.model = FakeRuntime(think)
    running = [asyncio.create_task(tester.butler.spawner.run(asked())) for _ in range(5)]
    try:
        await until("four refusals", lambda: sum(task.done() for task in running) == 4 or None)
    finally:
        gate.set()
    ended = await asyncio.gather(*running, return_exceptions=True)
    assert sum(isinstance(result, OverBudget) for result in ended) == 4


async def test_dollars_are_counted_by_the_price_table(make_butler: MakeButler) -> None:
    runtime = '[butler.runtime]\nmodel = "claude-sonnet-4-5"\n'
    tester = await open_house(make_butler, f"daily_usd = 0.10\n{runtime}")
    tester.butler.spawner.model = FakeRuntime(usage=Usage(30_000, 0, 0))  # $0.09 of this model
    await tester.butler.spawner.run(asked())
    (row,) = await tester.rows("SELECT cost_usd FROM sessions")
    assert row["cost_usd"] == Decimal("0.09")
    with pytest.raises(OverBudget, match=r"\$0\.09 so far"):
        await tester.butler.spawner.run(asked())


async def test_unknown_model_reserves_the_price_of_the_most_expensive_one(
    make_butler: MakeButler,
) -> None:
    tester = await open_house(make_butler, "daily_usd = 0.60")
    gate = asyncio.Event()

    async def wait(_butler: McpClient) -> str:
        await gate.wait()
        return ""

    tester.butler.spawner._slots = asyncio.Semaphore(2)
    tester.butler.spawner.model = FakeRuntime(wait)
    first = asyncio.create_task(tester.butler.spawner.run(asked()))
    try:
        await until("the first to be open", lambda: tester.rows("SELECT 1 FROM sessions"))
        with pytest.raises(OverBudget, match=r"\$0\.45 so far"):
            await tester.butler.spawner.run(asked())
    finally:
        gate.set()
    await first


async def test_first_session_takes_all_of_a_small_budget(
    make_butler: MakeButler,
) -> None:
    tester = await open_house(make_butler, f"daily_tokens = {EACH // 2}\ndaily_usd = 0.05")
    tester.butler.spawner.model = FakeRuntime(usage=Usage(900, 100, 0))
    assert (await tester.butler.spawner.run(asked())).ok
    no_room = r"has no room for another session \(1,000 so far; a session reserves 22,000\)"
    with pytest.raises(OverBudget, match=no_room):  # it is not used up
        await tester.butler.spawner.run(asked())


async def test_each_conversation_gets_one_over_budget_notice(make_butler: MakeButler) -> None:
    tester = await open_house(make_butler, "daily_tokens = 0")
    tester.butler.spawner.model = FakeRuntime()
    made = [await route(tester, text, thread) for thread in "ab" for text in ("first", "second")]
    await until("all to wait", lambda: _count(waiting(tester), 4))
    told = {reply["request_id"] for reply in await replies(tester)}
    assert told == {str(made[n].request.request_id) for n in (0, 2)}


async def test_over_budget_trigger_does_not_use_up_the_senders_notice(
    make_butler: MakeButler,
) -> None:
    tester = await open_house(make_butler, "daily_tokens = 0")
    tester.butler.spawner.model = FakeRuntime()
    with pytest.raises(OverBudget):
        await tester.butler.spawner.run(asked())
    made = await route(tester, "first")
    (told,) = await until("the sender to be told", lambda: replies(tester))
    assert told["request_id"] == str(made.request.request_id)
    assert told["message"].startswith("Today's budget of 0 tokens is used up")
    assert "UTC" in told["message"]


async def test_unknown_price_is_limited_by_tokens(make_butler: MakeButler) -> None:
    tester = await open_house(make_butler, f"daily_usd = 5\ndaily_tokens = {EACH + 1_000}")
    tester.butler.spawner.model = FakeRuntime(model="unknown-model", usage=Usage(5_000, 100, 0))
    await tester.butler.spawner.run(asked())
    async with tester.owner() as owner:
        (listed,) = (await owner.call("sessions_list"))["sessions"]
    assert listed["cost_usd"] is None
    with pytest.raises(OverBudget, match="5,100 so far"):
        await tester.butler.spawner.run(asked())


async def test_cost_uses_the_model_that_the_cli_chose(
    make_butler: MakeButler,
) -> None:
    tester = await open_house(make_butler, "daily_usd = 1")
    tester.butler.spawner.model = FakeRuntime(
        model="claude-opus-4-5-20251101", usage=Usage(100_000, 0, 0)
    )
    await tester.butler.spawner.run(asked())
    (row,) = await tester.rows("SELECT model, cost_usd FROM sessions")
    assert (row["model"], row["cost_usd"]) == ("claude-opus-4-5-20251101", Decimal("0.5"))
    await tester.butler.spawner.run(asked())
    with pytest.raises(OverBudget, match=r"\$1\.00 so far\)"):
        await tester.butler.spawner.run(asked())


@pytest.mark.parametrize("model", ["unknown-model", None])
async def test_unknown_price_does_not_count_as_the_most_expensive(
    make_butler: MakeButler, model: str | None
) -> None:
    """The reservation was a guess; the tokens are known and bind."""
    tester = await open_house(make_butler, "daily_usd = 1")
    tester.butler.spawner.model = FakeRuntime(model=model, usage=Usage(9_000, 1_000, 0))
    with capture_logs() as logs:
        for _ in range(3):
            await tester.butler.spawner.run(asked())
        with pytest.raises(OverBudget, match=r"\$0\.00 so far, and 30,000 tokens of unknown price"):
            await tester.butler.spawner.run(asked())
    said = [line for line in logs if "price of the model unknown" in line["event"]]
    assert [(line["model"], line["daily_tokens"]) for line in said] == [(model, [50_000])]
    rows = await tester.rows("SELECT cost_usd FROM sessions WHERE outcome = 'ok'")
    assert [row["cost_usd"] for row in rows] == [None] * 3


async def test_session_of_unknown_usage_counts_its_reservation(make_butler: MakeButler) -> None:
    tester = await open_house(make_butler, f"daily_tokens = {EACH}")

    async def crash(_butler: McpClient) -> str:
        raise RuntimeError("gone")

    tester.butler.spawner.model = FakeRuntime(crash)
    with pytest.raises(RuntimeError):
        await tester.butler.spawner.run(asked())
    with pytest.raises(OverBudget):
        await tester.butler.spawner.run(asked())


async def test_reflexes_cost_nothing(make_butler: MakeButler) -> None:
    tester = await open_house(make_butler, "daily_tokens = 0")
    tester.butler.spawner.model = FakeRuntime()
    result = await tester.butler.spawner.run(SessionRequest(uuid7(), "ping", "trigger"))
    assert result.text == "pong"


# -- messages --------------------------------------------------------------------------------------


async def route(tester: InProcessButler, text: str, thread: str | None = None) -> RouteRequest:
    request = RequestContext(
        uuid7(),
        datetime.now(UTC),
        "console",
        "console:owner",
        "owner",
        thread,
        sender_roles=("owner",),
    )
    decision = RouteDecision("tester", "fallback", "test")
    made = RouteRequest(request, "tester", text, decision)
    async with tester.butler.database.transaction() as connection:
        await accept_route(connection, made)
    return made


async def replies(tester: InProcessButler) -> list[dict[str, Any]]:
    rows = await tester.rows("SELECT payload FROM queue_items WHERE queue = 'notify' ORDER BY id")
    return [json.loads(row["payload"]) for row in rows]


async def waiting(tester: InProcessButler) -> list[dict[str, Any]]:
    return await tester.rows(
        "SELECT * FROM queue_items WHERE queue = 'routes' AND state = 'ready' AND run_after > now()"
    )


async def test_messages_wait_until_tomorrow_and_the_person_is_told_once(
    make_butler: MakeButler,
) -> None:
    tester = await open_house(make_butler, "daily_tokens = 0")
    tester.butler.spawner.model = FakeRuntime()
    await route(tester, "first")
    await until("the first to wait", lambda: _count(waiting(tester), 1))
    await route(tester, "second")
    found = await until("both to wait", lambda: _count(waiting(tester), 2))
    midnight = (datetime.now(UTC) + timedelta(days=1)).date()
    assert {row["run_after"].date() for row in found} == {midnight}
    assert {row["attempts"] for row in found} == {0}
    (told,) = await replies(tester)
    assert "budget of 0 tokens is used up" in told["message"]
    assert "kept" in told["message"]


async def _count(rows: Any, number: int) -> list[dict[str, Any]] | None:
    found: list[dict[str, Any]] = await rows
    return found if len(found) == number else None


async def test_over_budget_messages_are_refused_if_configured(
    make_butler: MakeButler,
) -> None:
    tester = await open_house(make_butler, 'daily_tokens = 0\nat_limit = "refuse"')
    tester.butler.spawner.model = FakeRuntime()
    made = await route(tester, "first")
    (told,) = await until("a reply", lambda: replies(tester))
    assert told["request_id"] == str(made.request.request_id)
    assert "today" in told["message"]
    await until(
        "the route to be done",
        lambda: tester.rows("SELECT 1 FROM queue_items WHERE queue = 'routes' AND state = 'done'"),
    )


@pytest.mark.parametrize(
    ("now", "day", "following"),
    [
        ("2026-03-28T23:30:00+00:00", "2026-03-28T23:00", "2026-03-29T22:00"),  # 23 hours long
        ("2026-10-25T10:00:00+00:00", "2026-10-24T22:00", "2026-10-25T23:00"),  # 25 hours long
        ("2026-07-01T12:00:00+00:00", "2026-06-30T22:00", "2026-07-01T22:00"),
    ],
)
def test_budget_day_uses_the_butlers_time_zone(
    tmp_path: Any, now: str, day: str, following: str
) -> None:
    budget = Budget(BudgetConfig(), load_prices(Settings(tmp_path)), ZoneInfo("Europe/Berlin"))
    moment = datetime.fromisoformat(now)
    assert budget.limit.day_of(moment).astimezone(UTC).isoformat()[:16] == day
    assert budget.limit.next_day(moment).astimezone(UTC).isoformat()[:16] == following
