"""The whole fleet's budget: butlers in processes of their own do not overrun it together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from butlers.config.fleet import FleetConfig
from butlers.domain.clock import uuid7
from butlers.domain.errors import OverBudget
from butlers.domain.session import Outcome, SessionRequest, Usage
from butlers.sessions.budget import RESERVED, TOKENS_PER_DOLLAR, Claim, FleetBudget
from butlers.wire.client import McpClient
from support.fake_runtime import FakeRuntime, for_ever
from support.in_process import InProcessButler, MakeButler
from support.waiting import until

EACH = (RESERVED.input_tokens or 0) + (RESERVED.output_tokens or 0)
UNKNOWN = '[butler.runtime]\nmodel = "unknown-model"\n'

Start = Callable[..., Awaitable[InProcessButler]]


def asked() -> SessionRequest:
    return SessionRequest(uuid7(), "think", "trigger")


@pytest.fixture
def start(make_butler: MakeButler) -> Start:
    """A butler that reads the fleet's ledger itself, as one in a process of its own does."""

    async def started(name: str | None, fleet: FleetConfig, extra: str = "") -> InProcessButler:
        tester = make_butler(name) if name else make_butler(extra=extra)
        butler = tester.make(fleet_budget=FleetBudget.of(fleet, tester.home))
        await butler.start()
        butler.spawner._slots = asyncio.Semaphore(5)
        butler.spawner.model = FakeRuntime()
        return tester

    return started


async def test_two_butlers_cannot_exceed_the_fleet_budget(start: Start) -> None:
    fleet = FleetConfig(daily_tokens=2 * EACH)
    testers = [await start(None, fleet), await start("general", fleet)]
    gate = asyncio.Event()

    async def think(butler: McpClient) -> str:
        await butler.list_tools()
        await gate.wait()
        return "done"

    for tester in testers:
        tester.butler.spawner.model = FakeRuntime(think, usage=Usage(900, 100, 0))
    running = [
        asyncio.create_task(tester.butler.spawner.run(asked()))
        for tester in testers
        for _ in range(4)
    ]
    try:
        await until("six refusals", lambda: sum(task.done() for task in running) == 6 or None)
    finally:
        gate.set()
    ended = await asyncio.gather(*running, return_exceptions=True)
    refused = [result for result in ended if isinstance(result, OverBudget)]
    assert len(refused) == 6
    assert "the fleet's budget for today" in str(refused[0])
    assert "fleet.toml" in (refused[0].hint or "")
    assert refused[0].until is not None
    # What the two really used counts from here on, and so one more fits.
    assert (await testers[1].butler.spawner.run(asked())).ok


async def test_session_cut_short_counts_at_least_its_reservation(start: Start) -> None:
    tester = await start(None, FleetConfig(daily_tokens=EACH + 10))
    tester.butler.spawner.model = FakeRuntime(for_ever)
    session = asked()
    running = asyncio.create_task(tester.butler.spawner.run(session))
    await until("it to run", lambda: tester.butler.guard.count == 1)
    tester.butler.spawner.stop(session.session_id)
    assert (await running).outcome is Outcome.CANCELLED
    with pytest.raises(OverBudget):
        await tester.butler.spawner.run(asked())


async def test_session_survives_a_fleet_ledger_that_cannot_be_written(start: Start) -> None:
    """Its usage is in the butler's own log; the fleet's ledger keeps the reservation."""
    tester = await start(None, FleetConfig(daily_tokens=10 * EACH))

    async def think(butler: McpClient) -> str:
        await butler.list_tools()
        (ledger,) = (tester.home / "budget").glob("*.jsonl")
        ledger.unlink()
        ledger.mkdir()
        return "done"

    tester.butler.spawner.model = FakeRuntime(think, usage=Usage(900, 100, 0))
    session = asked()
    with capture_logs() as logs:
        assert (await tester.butler.spawner.run(session)).text == "done"
    (row,) = await tester.rows("SELECT outcome, input_tokens, completed_at FROM sessions")
    assert (row["outcome"], row["input_tokens"]) == ("ok", 900)
    assert row["completed_at"] is not None
    (said,) = [line for line in logs if line["event"] == "fleet budget not settled"]
    assert said["session"] == str(session.session_id)
    assert "directory" in said["error"]


async def test_reservation_is_released_if_the_session_cannot_be_logged(start: Start) -> None:
    tester = await start(None, FleetConfig(daily_tokens=EACH))
    tester.butler.spawner.model = FakeRuntime(usage=Usage(0, 0, 0))
    twice = asked()
    await tester.butler.spawner.run(twice)
    with pytest.raises(Exception, match="duplicate key"):
        await tester.butler.spawner.run(twice)
    assert (await tester.butler.spawner.run(asked())).ok


async def test_unknown_price_binds_tokens_and_warns_once(
    start: Start,
) -> None:
    tester = await start(None, FleetConfig(), f"[butler.budget]\ndaily_usd = 1\n{UNKNOWN}")
    thinker = FakeRuntime(model="unknown-model", usage=Usage(TOKENS_PER_DOLLAR - EACH, 0, 0))
    tester.butler.spawner.model = thinker
    with capture_logs() as logs:
        assert (await tester.butler.spawner.run(asked())).ok
        thinker.usage = Usage(1, 0, 0)
        assert (await tester.butler.spawner.run(asked())).ok
        with pytest.raises(OverBudget, match="50,000 tokens"):
            await tester.butler.spawner.run(asked())
    said = [line for line in logs if "price of the model unknown" in line["event"]]
    assert [line["model"] for line in said] == ["unknown-model"]
    assert said[0]["daily_tokens"] == [50_000]


async def test_without_a_price_a_token_budget_of_the_owner_binds(start: Start) -> None:
    fleet = FleetConfig(daily_usd=Decimal(100), daily_tokens=EACH + 1)
    tester = await start(None, fleet, UNKNOWN)
    await tester.butler.spawner.run(asked())  # of unknown usage: it counts as reserved
    with pytest.raises(OverBudget, match=f"{EACH + 1:,} tokens"):
        await tester.butler.spawner.run(asked())


def test_unpriced_tokens_take_part_of_the_dollar_budget(tmp_path: Path) -> None:
    budget, now = FleetBudget.of(FleetConfig(daily_usd=Decimal(1)), tmp_path), datetime.now(UTC)
    session = uuid7()
    budget.reserve(session, Claim(EACH, Decimal("0.45")), now)
    budget.settle(session, Claim(20_000, None))
    budget.reserve(uuid7(), Claim(1, Decimal("0.60")), now)
    with pytest.raises(OverBudget, match="20,000 tokens of unknown price"):
        budget.reserve(uuid7(), Claim(1, None), now)


def test_torn_ledger_line_is_skipped(tmp_path: Path) -> None:
    fleet, now = FleetConfig(daily_tokens=100), datetime.now(UTC)
    FleetBudget.of(fleet, tmp_path).reserve(uuid7(), Claim(60, None), now)
    (file,) = (tmp_path / "budget").iterdir()
    with file.open("a") as torn:
        torn.write('["0\n')
    with pytest.raises(OverBudget):
        FleetBudget.of(fleet, tmp_path).reserve(uuid7(), Claim(60, None), now)
    assert file.stat().st_mode & 0o777 == 0o600
