"""Schedules over budget: postponed to the next day, or failed."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from butlers.config.butler import BudgetConfig
from butlers.domain.queues import SCHEDULES
from butlers.queue.leased_queue import notify
from butlers.scheduling.scheduler import Scheduler
from integration.scheduling.conftest import ScheduledButler
from support.fake_runtime import FakeRuntime
from support.waiting import until

EVERY_MINUTE = 'cron = "* * * * *"\nprompt = "think about it"'


@pytest.fixture
def over(scheduled: ScheduledButler) -> ScheduledButler:
    scheduled.clock.at = datetime.now(
        UTC
    )  # the database's clock decides when postponed items are due
    return scheduled


async def begin(scheduled: ScheduledButler, at_limit: str, *names: str) -> None:
    extra = f'[butler.budget]\ndaily_tokens = 0\nat_limit = "{at_limit}"'
    scheduled.write(*(f'name = "{name}"\n{EVERY_MINUTE}' for name in names), extra=extra)
    await scheduled.start()
    scheduled.butler.spawner.model = FakeRuntime()
    scheduled.clock.move(minutes=1)
    assert set((await scheduled.butler.service(Scheduler).tick()).as_dict()["queued"]) == set(names)
    await hurry(scheduled)


async def hurry(scheduled: ScheduledButler) -> None:
    """Make delayed queue items available now."""
    async with scheduled.butler.database.transaction() as connection:
        await connection.execute(
            "UPDATE queue_items SET run_after = now() WHERE queue = $1", SCHEDULES
        )
        await notify(connection, SCHEDULES)


async def until_waiting(scheduled: ScheduledButler, number: int) -> list[dict[str, Any]]:
    async def look() -> list[dict[str, Any]] | None:
        found = await scheduled.rows(
            "SELECT * FROM queue_items WHERE queue = $1 AND state = 'ready'"
            " AND run_after > now() + interval '30 seconds'",
            SCHEDULES,
        )
        return found if len(found) == number else None

    return await until(f"{number} to wait", look)


async def test_over_budget_runs_wait_and_the_owner_is_told_once(over: ScheduledButler) -> None:
    await begin(over, "wait", "first", "second")
    found = await until_waiting(over, 2)
    assert {row["attempts"] for row in found} == {0}
    for name in ("first", "second"):
        (run,) = await over.runs(name)
        assert (run["outcome"], run["detail"]) == (None, "waited for a new budget")
    (notice,) = await over.sent()
    assert "budget of 0 tokens is used up" in notice["message"]
    assert "it runs after" in notice["message"]


async def test_postponed_runs_start_with_the_new_budget(over: ScheduledButler) -> None:
    await begin(over, "wait", "first")
    await until_waiting(over, 1)
    deps = over.butler.spawner._deps
    fresh = replace(deps.budget, config=BudgetConfig())
    over.butler.spawner._deps = replace(deps, budget=fresh)
    over.clock.move(days=1)
    await over.rows(
        "UPDATE queue_items SET run_after = now() WHERE queue = 'schedules' RETURNING 1"
    )
    await over.rows("SELECT pg_notify('butlers:' || current_schema(), 'schedules')")
    (run,) = await over.ended("first")
    assert (run["outcome"], run["detail"]) == ("ran", "waited for a new budget")
    assert run["finished_at"] - run["due_at"] > timedelta(hours=12)


async def test_over_budget_runs_fail_if_configured(over: ScheduledButler) -> None:
    await begin(over, "refuse", "first", "second")
    for name in ("first", "second"):
        (run,) = await over.ended(name)
        assert run["outcome"] == "failed"
        assert "budget of 0 tokens is used up" in run["detail"]
    (notice,) = await over.sent()
    assert "this run is canceled" in notice["message"]
    refused = await over.rows("SELECT outcome, error FROM sessions")
    assert {row["outcome"] for row in refused} == {"over-budget"}
