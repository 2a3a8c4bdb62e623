"""Modules over MCP: a real butler and database."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
from structlog.testing import capture_logs

from butlers.daemon.butler import Butler
from butlers.domain.caller import CallerKind
from butlers.domain.errors import NotFound, PhaseFailed
from butlers.domain.module import ModuleDisabled
from butlers.wire.client import McpClient
from support.postbox import ALONE, GOOD, events
from support.postbox_butler import PostboxButler, Start

FIRST = """
from butlers.sdk import Module

happened = []


class First(Module):
    name = "first"

    async def on_startup(self, config, db):
        happened.append("started")

    async def on_shutdown(self):
        happened.append("stopped")
"""
FAILS = {**GOOD, "email": 'address = "postbox@example.org"\nfail = "startup"'}


@asynccontextmanager
async def owner(butler: Butler) -> AsyncIterator[McpClient]:
    token = butler.key.mint(CallerKind.OWNER, "owner", butler.config.name)
    async with McpClient(butler.config.name, butler.url, lambda: token) as client:
        yield client


async def test_a_client_calls_the_tools_of_both_modules(start: Start) -> None:
    async with owner(await start()) as client:
        sent = await client.call(
            "bot_email_send_message",
            {"to": "ada@example.org", "subject": "Tea", "body": "At five."},
        )
        found = await client.call("bot_email_search_inbox", {"query": "FIVE"})
        assert found == {"messages": [{"id": sent["id"], "subject": "Tea"}]}
        mail = await client.call("bot_email_read_message", {"message_id": sent["id"]})
        assert (mail["sender"], mail["body"]) == ("postbox@example.org", "At five.")
        event = {"title": "Tea", "starts_at": "2027-01-02T17:00:00Z", "announced_by": sent["id"]}
        assert (await client.call("calendar_add_event", event))["id"]


@pytest.mark.scenario("S001-57")
async def test_state_contains_health_phase_error_and_a_persistent_switch(
    start: Start,
) -> None:
    first = await start()
    async with owner(first) as client:
        for name in ("module.states", "module_states"):
            states = (await client.call(name))["modules"]
            assert [
                (state["name"], state["health"], state["enabled"], state["failure_phase"])
                for state in states
            ] == [("email", "active", True, None), ("calendar", "active", True, None)]
        off = await client.call("module_set_enabled", {"name": "calendar", "enabled": False})
        assert (off["enabled"], off["available"]) == (False, False)
    await first.stop()
    async with owner(await start(FAILS)) as client:
        email, calendar = (await client.call("module.states"))["modules"]
    assert (email["health"], email["enabled"], email["failure_phase"]) == (
        "failed",
        True,
        "startup",
    )
    assert email["failure_error"] == "ConnectionError: the mail server does not answer"
    assert (calendar["health"], calendar["enabled"]) == ("cascade_failed", False)
    assert calendar["failure_phase"] == "startup"
    assert "it depends on email" in calendar["failure_error"]


@pytest.mark.scenario("S001-58")
async def test_butler_runs_without_its_failed_module(start: Start) -> None:
    with capture_logs() as log:
        butler = await start({**FAILS, "alone": ""}, code={"alone": ALONE})
    assert events(log, "module failed") == [
        ("module failed", "email"),
        ("module failed", "calendar"),
    ]
    async with owner(butler) as client:
        states = (await client.call("module.states"))["modules"]
        assert {state["name"]: state["health"] for state in states} == {
            "email": "failed",
            "calendar": "cascade_failed",
            "alone": "active",
        }
        assert await client.call("alone_ping") == {"answer": "pong"}
        for tool in ("bot_email_read_message", "calendar_add_event"):
            with pytest.raises(NotFound, match=f"there is no tool '{tool}'"):
                await client.call(tool)
        assert (await client.call("status"))["name"] == "postbox"
        assert (await client.call("trigger", {"prompt": "hello"}))["session_id"]


async def test_disabled_module_rejects_calls_over_mcp(start: Start) -> None:
    async with owner(await start()) as client:
        await client.call("module.set_enabled", {"name": "email", "enabled": False})
        for tool in ("bot_email_search_inbox", "calendar_add_event"):
            with pytest.raises(ModuleDisabled) as refused:
                await client.call(tool, {"query": "x"})
            assert "module.set_enabled" in str(refused.value.hint)
        await client.call("module.set_enabled", {"name": "email", "enabled": True})
        assert await client.call("bot_email_search_inbox", {"query": "x"}) == {"messages": []}
        with pytest.raises(NotFound, match="did you mean 'email'"):
            await client.call("module.set_enabled", {"name": "emial", "enabled": True})


@pytest.mark.scenario("S002-30")
async def test_strict_module_failure_aborts_the_start(
    postbox: PostboxButler,
) -> None:
    postbox.write({"first": "", **FAILS}, extra="strict_modules = true", code={"first": FIRST})
    butler = postbox.make_in()
    with capture_logs() as log, pytest.raises(PhaseFailed) as failed:
        await butler.start()
    assert failed.value.phase == "start modules"
    assert "module 'email' failed in startup" in failed.value.message
    assert "the mail server does not answer" in failed.value.message
    assert events(log, "module initialized", "module shutdown") == [
        ("module initialized", "first"),
        ("module shutdown", "first"),
    ]
    assert postbox.module("first").happened == ["started", "stopped"]
    begun = [line["phase"] for line in log if line["event"] == "phase started"]
    assert begun[-1] == "start modules"
    assert not hasattr(butler, "mcp")
    async with httpx.AsyncClient(trust_env=False, verify=False) as http:
        assert (await http.post(butler.url, json={})).status_code == 503


async def test_modules_stop_before_the_pool_closes(start: Start) -> None:
    butler = await start()
    with capture_logs() as log:
        await butler.stop()
    wanted = ("module shutdown", "database pool closed")
    assert [(line["event"], line.get("module")) for line in log if line["event"] in wanted] == [
        ("module shutdown", "calendar"),
        ("module shutdown", "email"),
        ("database pool closed", None),
    ]
