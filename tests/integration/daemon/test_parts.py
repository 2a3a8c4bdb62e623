"""The Butler as composition root: it owns every part of its daemon from start to stop."""

from __future__ import annotations

from uuid import UUID

import pytest
from fastmcp import FastMCP

from butlers.config.butler import ButlerConfig
from butlers.db.database import Database
from butlers.modules.lifecycle import ModuleSet
from butlers.scheduling.scheduler import Scheduler
from butlers.sessions.session_log import SessionLog
from butlers.sessions.spawner import Spawner
from butlers.tools.state import StateStore
from support import mcp_clients as clients
from support.in_process import InProcessButler, MakeButler
from support.waiting import until

PARTS = {
    "config": ButlerConfig,
    "database": Database,
    "state_store": StateStore,
    "scheduler": Scheduler,
    "spawner": Spawner,
    "session_log": SessionLog,
    "modules": ModuleSet,
    "mcp": FastMCP,
}


@pytest.mark.scenario("S002-35")
async def test_started_butler_has_the_parts_that_its_tools_use(
    make_butler: MakeButler,
) -> None:
    tester = make_butler()
    butler = tester.make()
    assert not {name for name in PARTS if hasattr(butler, name)} - {"config"}

    await butler.start()

    held = {name: getattr(butler, name) for name in PARTS}
    assert {name: type(part) for name, part in held.items()} == PARTS
    assert [module.name for module in butler.modules] == ["bench"]
    async with clients.fastmcp_modern(butler.url, tester.owner_token) as client:
        offered = {tool.name for tool in await butler.mcp.list_tools(run_middleware=False)}
        assert await client.names() < offered  # those that the owner may call
        await assert_the_tools_and_the_parts_know_the_same(tester, client)
    assert {name: getattr(butler, name) for name in PARTS} == held  # not replaced meanwhile


async def assert_the_tools_and_the_parts_know_the_same(
    tester: InProcessButler, client: clients.ToolClient
) -> None:
    butler = tester.butler
    async with butler.database.transaction() as connection:
        assert await connection.fetchval("SELECT current_database()") == butler.config.db.name

    await client.call("state_set", {"key": "tea", "value": {"cups": 2}})
    kept = await butler.state_store.get("tea")
    assert kept is not None
    assert (kept.value, kept.version) == ({"cups": 2}, 1)
    assert await butler.state_store.put("tea", 3, expected_version=1) == 2
    assert (await client.call("state_get", {"key": "tea"}))["value"] == 3
    assert await butler.state_store.remove("tea")
    assert await client.call("state_list", {}) == {"keys": []}

    done = await client.call("trigger", {"prompt": "ping"})
    (session,) = await butler.session_log.recent()
    assert str(session["id"]) == done["session_id"]
    whole = await butler.session_log.get(UUID(done["session_id"]))
    assert whole is not None
    assert (whole["prompt"], whole["output"]) == ("ping", "pong")
    assert butler.spawner.runtime.name == session["runtime"]

    task = {"name": "tea", "cron": "0 17 * * *", "prompt": "ping"}
    made = await client.call("schedule_create", task)
    await client.call("schedule_update", {"id": made["id"], "run_now": True})
    await butler.service(Scheduler).tick()  # unless its own loop was faster

    async def ran() -> bool:
        (shown,) = (await client.call("schedule_list", {}))["schedules"]
        return [run["outcome"] for run in shown["runs"]] == ["ran"]

    await until("the schedule to have run", ran)
