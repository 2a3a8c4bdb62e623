"""The Switchboard and the Messenger in a running fleet, and how butlers reach each other."""

from __future__ import annotations

import asyncio
import itertools
import tomllib
from typing import Any

import httpx
import pytest

from butlers.cli.fleet import owner_client
from butlers.config.butler import load_butler_config
from butlers.config.settings import Settings
from butlers.domain.errors import NotAllowed
from butlers.queue.leased_queue import MAX_ATTEMPTS
from support.fleet import BUTLER_PORTS, BUTLERS, ROOT, Fleet, wait_for

OTHERS = [name for name in BUTLERS if name != "switchboard"]


def tools_of(fleet: Fleet, butler: str) -> set[str]:
    async def ask() -> set[str]:
        async with owner_client(fleet.settings, butler) as client:
            return {tool["name"] for tool in await client.list_tools()}

    return asyncio.run(ask())


def callers(fleet: Fleet, butler: str, tool: str) -> set[str]:
    rows = fleet.rows(
        f"SELECT DISTINCT caller FROM {butler}.tool_calls WHERE tool = $1 AND caller_kind = 'peer'",
        tool,
    )
    return {row["caller"] for row in rows}


@pytest.mark.scenario("S001-25")
def test_butlers_reach_each_other_only_through_the_switchboard(fleet: Fleet) -> None:
    """THEN by MCP calls through the Switchboard, never by schema access; AND `shared` carries no messages."""
    request_id = fleet.send("pulse 61")
    assert fleet.replies(request_id)
    # What health had to say to the Messenger went by the Switchboard, and its own route came from there.
    assert callers(fleet, "switchboard", "deliver") == {"health"}
    assert callers(fleet, "messenger", "deliver") == {"switchboard"}
    assert callers(fleet, "health", "route.execute") == {"switchboard"}
    for me in BUTLERS:
        for other in BUTLERS:
            if me != other:
                assert not _may_use(fleet, me, other)
    # One butler asks another for data by a typed request, and the Switchboard passes it on.
    asked = {"butler": "health", "tool": "status"}
    assert fleet.call("general", "ask_butler", asked)["answer"]["name"] == "health"
    for me, other in itertools.permutations(BUTLERS, 2):
        if "switchboard" not in (me, other):
            with pytest.raises(NotAllowed):
                fleet.call_as_peer(me, other, "status")
    tables = fleet.rows("SELECT tablename FROM pg_tables WHERE schemaname = 'shared'")
    assert {row["tablename"] for row in tables} == {
        "secrets",
        "contacts",
        "contact_channels",
        "contact_info",  # who has which address, published by the butler that keeps the people
        "alembic_version_shared",
        "approval_events",  # names of tools and decisions, without arguments
        "question_turn",
    }


def _may_use(fleet: Fleet, me: str, other: str) -> bool:
    (row,) = fleet.rows(
        "SELECT bool_or(has_schema_privilege(oid, $2, 'USAGE')) AS may FROM pg_roles"
        " WHERE rolname ~ ('^butlers_[0-9a-f]+_' || $1 || '$')",
        me,
        other,
    )
    return bool(row["may"])


@pytest.mark.scenario("S001-26")
def test_only_the_switchboard_accepts_messages(fleet: Fleet) -> None:
    """THEN it is there on 40100 as the sole entry; AND it classifies and routes; AND it keeps the buffer;
    AND the registry of connectors; AND nobody else takes messages; AND it registers nowhere."""
    config = load_butler_config(ROOT / "roster" / "switchboard", Settings(fleet.home))
    assert config.port == 40100
    assert config.switchboard is None
    assert fleet.health("switchboard")["switchboard"] is None  # type: ignore[index]

    request_id = fleet.send("pulse 62")
    assert fleet.replies(request_id)[0].origin == "health"
    (decision,) = fleet.rows(
        "SELECT target, rule FROM switchboard.route_decisions WHERE request_id = $1", request_id
    )
    assert tuple(decision) == ("health", "reflex")
    (item,) = fleet.rows(
        "SELECT priority, max_attempts FROM switchboard.queue_items"
        " WHERE queue = 'inbox' AND key = $1",
        str(request_id),
    )
    assert tuple(item) == (1, MAX_ATTEMPTS), "in the tier of a person that waits"

    ours = tools_of(fleet, "switchboard")
    assert {"ingest", "connector_heartbeat", "connectors_list", "registry_list"} <= ours
    for name in OTHERS:
        assert not {"ingest", "connector_heartbeat"} & tools_of(fleet, name)
        assert _posted(fleet, name).status_code == 404
    assert _posted(fleet, "switchboard").status_code == 401
    registered = fleet.call("switchboard", "registry_list")["butlers"]
    assert {butler["name"] for butler in registered} == set(OTHERS)


def test_queued_messages_survive_a_crash(fleet: Fleet) -> None:
    fleet.stop("health")
    request_id = fleet.send("pulse 63")
    wait_for("a first attempt", lambda: _tried(fleet, str(request_id)))
    fleet.kill("switchboard")
    fleet.start("switchboard")
    fleet.wait_healthy("switchboard")
    fleet.start("health")
    fleet.wait_healthy("health")
    assert [reply.message for reply in fleet.replies(request_id)] == ["Logged: pulse 63 bpm."]


def _tried(fleet: Fleet, key: str) -> bool:
    rows = fleet.rows(
        "SELECT error FROM switchboard.queue_items WHERE queue = 'inbox' AND key = $1", key
    )
    return bool(rows and rows[0]["error"])


@pytest.mark.scenario("S001-41")
def test_butler_registers_as_configured(fleet: Fleet) -> None:
    """THEN it registers at its start, which makes it a target; AND url, liveness_ttl_s and the contract's
    range are configuration."""
    written = tomllib.loads((ROOT / "roster" / "health" / "butler.toml").read_text())
    assert written["butler"]["switchboard"]["advertise"] is True
    config = load_butler_config(ROOT / "roster" / "health", fleet.settings).switchboard
    assert config is not None
    assert config.url.endswith(f":{40100 + fleet.slot.offset}/mcp")
    known = {
        butler["name"]: butler for butler in fleet.call("switchboard", "registry_list")["butlers"]
    }
    health = known["health"]
    assert health["state"] == "active"
    assert health["liveness_ttl_s"] == config.liveness_ttl_s
    assert (health["contract_min"], health["contract_max"]) == (
        config.route_contract_min,
        config.route_contract_max,
    )
    assert health["description"]
    assert health["triggers"] > 0
    assert "health" in health["capabilities"]
    assert not health["infrastructure"]
    assert known["messenger"]["infrastructure"]
    request_id = fleet.send("pulse 64")
    assert fleet.replies(request_id)[0].origin == "health"


def _posted(fleet: Fleet, name: str) -> httpx.Response:
    state: Any = fleet.health(name)
    assert state["name"] == name
    port = 40100 + BUTLER_PORTS[name] + fleet.slot.offset
    return httpx.post(f"http://127.0.0.1:{port}/ingest", json={}, trust_env=False, verify=False)


def test_only_the_messenger_sends(fleet: Fleet) -> None:
    """Without Telegram and email: the Messenger has its port and no schedules, and it alone has the sending
    tools. Other butlers send by notify, through the Switchboard."""
    config = load_butler_config(ROOT / "roster" / "messenger", Settings(fleet.home))
    assert config.port == 40104
    assert not config.schedules
    skills = [skill.resolve() for skill in (ROOT / "roster" / "messenger").glob("skills/*")]
    assert all(skill.is_relative_to(ROOT / "roster" / "shared" / "skills") for skill in skills)

    request_id = fleet.send("pulse 64")
    assert len(fleet.replies(request_id)) == 1
    for name in ("switchboard", "health", "messenger"):
        kept = f"SELECT to_regclass('{name}.deliveries') IS NOT NULL AS it"
        assert fleet.rows(kept)[0]["it"] is (name == "messenger")
    (delivery,) = fleet.rows(
        "SELECT origin, state FROM messenger.deliveries WHERE request_id = $1", request_id
    )
    assert tuple(delivery) == ("health", "delivered")
    assert not fleet.rows("SELECT 1 FROM messenger.sessions")
    assert not fleet.rows("SELECT 1 FROM messenger.scheduled_tasks")
    for name in OTHERS:
        own = {"deliveries_list", "delivery_release"} & tools_of(fleet, name)
        assert bool(own) is (name == "messenger")
    assert "notify" in tools_of(fleet, "health")
