"""Tools of a butler: core, modules and own; listed and called by real clients."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport

from butlers.daemon.butler import Butler
from butlers.domain.caller import CallerKind
from butlers.modules.base import Module
from butlers.modules.registry import load_module
from butlers.scheduling.role import SchedulingRole
from butlers.tools.catalogue import core_tools
from butlers.tools.declaration import spec_of
from support import mcp_clients as clients
from support.mcp_clients import ToolClient
from support.postbox import GOOD
from support.postbox_butler import PostboxButler
from support.tester_folder import ROSTER, copy_roster

CORE = {
    *("status", "trigger", "route.execute", "tick", "notify", "remind", "get_attachment"),
    *("state_get", "state_set", "state_delete", "state_list"),
    *("schedule_list", "schedule_create", "schedule_update", "schedule_delete"),
    *("sessions_list", "sessions_get"),
    *("module.states", "module.set_enabled"),
}
# A part of the core too, for the owner alone: a butler without skills has none for its sessions.
OWNERS_OVER_SKILLS = {"skill_approve", "skill_assign", "soul_edit", "soul_show", "soul_undo"}
OF_EMAIL = {"bot_email_send_message", "bot_email_search_inbox", "bot_email_read_message"}
OF_CALENDAR = {"calendar_add_event"}
EMAIL = {"email": GOOD["email"]}
MAIL = {"to": "ada@example.org", "subject": "Tea", "body": "At five."}
TELLS = '''
from butlers.sdk import SESSIONS, CallContext, Module, tool

asked = []


@tool(callers=SESSIONS)
async def told(ctx: CallContext) -> dict[str, str]:
    """Say something."""
    return {"said": "something"}


class Tells(Module):
    name = "tells"
    tools = (told,)

    def register_tools(self, mcp, config, db):
        asked.append((mcp, config, db))
        super().register_tools(mcp, config, db)
'''


async def call_each_core_tool(client: ToolClient) -> dict[str, Any]:
    """Call every required tool once; return the answers by name."""
    answers: dict[str, Any] = {}

    async def call(name: str, /, **arguments: Any) -> Any:
        answer = await client.call(name, arguments)
        assert not isinstance(answer.get("error"), dict), (name, answer)
        answers[name] = answer
        return answer

    await call("status")
    await call("tick")
    done = await call("trigger", prompt="hello", context="It is morning.")
    await call("state_set", key="tea.cups", value={"count": 2})
    await call("state_get", key="tea.cups")
    await call("state_list", prefix="tea.")
    await call("state_delete", key="tea.cups")
    made = await call("schedule_create", name="tea", cron="0 17 * * *", prompt="Make tea.")
    await call("schedule_update", id=made["id"], cron="0 16 * * *")
    await call("schedule_list")
    await call("schedule_delete", id=made["id"])
    await call("sessions_list", limit=1, offset=0)
    await call("sessions_get", id=done["session_id"])
    return answers


def check_answers(answers: dict[str, Any]) -> None:
    assert answers["status"]["name"] == "postbox"
    assert answers["tick"] == {}  # nothing was due
    assert answers["trigger"]["outcome"] == "no-match"
    assert answers["state_set"] == {"version": 1}
    assert answers["state_get"]["value"] == {"count": 2}
    assert answers["state_list"] == {"keys": ["tea.cups"]}
    assert answers["state_delete"] == {"deleted": True}
    (task,) = answers["schedule_list"]["schedules"]
    assert (task["name"], task["cron"], task["prompt"]) == ("tea", "0 16 * * *", "Make tea.")
    assert task["id"] == answers["schedule_create"]["id"] == answers["schedule_update"]["id"]
    assert answers["schedule_delete"]["status"] == "deleted"
    (session,) = answers["sessions_list"]["sessions"]
    assert session["id"] == answers["trigger"]["session_id"]
    whole = answers["sessions_get"]
    assert (whole["id"], whole["outcome"], whole["tool_calls"]) == (session["id"], "no-match", [])
    assert "It is morning." in whole["prompt"]
    assert "hello" in whole["prompt"]


# -- the core ------------------------------------------------------------------------------------------


@pytest.mark.scenario("S002-20")
@pytest.mark.parametrize("connect", clients.ALL, ids=lambda connect: connect.__name__)
async def test_core_tools_are_listed_and_answer(
    postbox: PostboxButler, connect: clients.Connect
) -> None:
    await postbox.start(GOOD)
    async with postbox.connect(connect=connect) as client:
        answers = await call_each_core_tool(client)
        assert set(answers) <= await client.names()
    check_answers(answers)


@pytest.mark.scenario("S002-19", "S002-22")
async def test_butler_without_modules_has_only_core_tools(
    postbox: PostboxButler,
) -> None:
    butler = await postbox.start({})
    assert (butler.modules.modules, butler.modules.healthy) == ((), True)
    async with postbox.connect() as client:
        answers = await call_each_core_tool(client)
        assert set(answers) <= await client.names()
    check_answers(answers)
    core = {name for spec in core_tools(SchedulingRole()) for name in (spec.name, *spec.aliases)}
    assert set(await postbox.offered()) == core | OWNERS_OVER_SKILLS


@pytest.mark.scenario("S001-06")
@pytest.mark.parametrize("name", ["switchboard", "messenger", "general", "health"])
async def test_every_butler_has_the_core_tools(postbox: PostboxButler, name: str) -> None:
    copy_roster(name, postbox.directory, postbox.database_name)
    await postbox.make_in().start()
    assert CORE - set(await postbox.offered()) == set()


@pytest.mark.scenario("S002-21")
async def test_status_contains_identity_and_health(postbox: PostboxButler) -> None:
    await postbox.start(GOOD, name="assistant")
    async with postbox.connect() as client:
        status = await client.call("status", {})
        again = await client.call("status", {})
    assert status["name"] == "assistant"
    assert sorted(status["modules"]) == ["calendar", "email"]
    assert status["health"] == "healthy"
    assert 0 <= status["uptime_s"] <= again["uptime_s"]


# -- modules -------------------------------------------------------------------------------------------


@pytest.mark.scenario("S002-23")
async def test_module_tools_are_added_to_core_tools(postbox: PostboxButler) -> None:
    await postbox.start(EMAIL)
    async with postbox.connect() as client:
        answers = await call_each_core_tool(client)
        assert OF_EMAIL | set(answers) <= await client.names()
        sent = await client.call("bot_email_send_message", MAIL)
        found = await client.call("bot_email_search_inbox", {"query": "tea"})
        read = await client.call("bot_email_read_message", {"message_id": sent["id"]})
    check_answers(answers)
    assert found == {"messages": [{"id": sent["id"], "subject": "Tea"}]}
    assert read["body"] == "At five."


@pytest.mark.scenario("S002-24")
async def test_tools_of_two_modules_do_not_collide(postbox: PostboxButler) -> None:
    butler = await postbox.start(GOOD)
    token = postbox.key.mint(CallerKind.OWNER, "owner", "postbox")
    async with Client(StreamableHttpTransport(butler.url, auth=token)) as client:
        listed = [tool.name for tool in await client.list_tools()]
    assert len(listed) == len(set(listed))
    async with postbox.connect() as owner:
        answers = await call_each_core_tool(owner)
        sent = await owner.call("bot_email_send_message", MAIL)
        event = {"title": "Tea", "starts_at": "2027-01-02T17:00:00Z", "announced_by": sent["id"]}
        assert (await owner.call("calendar_add_event", event))["id"]
    assert OF_EMAIL | OF_CALENDAR | set(answers) <= set(listed)


@pytest.mark.scenario("S001-07")
async def test_butler_has_only_declared_tools_of_declared_modules(
    postbox: PostboxButler,
) -> None:
    butler = await postbox.start({**EMAIL, "tells": ""}, code={"tells": TELLS})
    # Asked once, at the start, with what it may register on, its section and the database.
    ((registrar, config, db),) = postbox.module("tells").asked
    assert config is butler.modules.modules[1].config
    assert db is butler.database
    assert [spec.name for spec in registrar.specs] == ["told"]
    offered = set(await postbox.offered())
    assert OF_EMAIL | {"told"} <= offered
    assert not OF_CALENDAR & offered
    async with postbox.connect() as client:
        assert await client.call("told", {}) == {"said": "something"}
        assert (await client.call("bot_email_send_message", MAIL))["id"]
    await butler.stop()

    butler = await postbox.start(GOOD)
    assert set(await postbox.offered()) >= OF_EMAIL | OF_CALENDAR
    await butler.stop()

    smuggler = await postbox.start({"email": GOOD["email"] + '\nfail = "undeclared tool"'})
    assert not (OF_EMAIL | {"smuggled_tool"}) & set(await postbox.offered())
    (state,) = smuggler.modules.states()
    assert state.failure_phase == "tools"
    assert "the undeclared tool 'smuggled_tool'" in str(state.failure_error)


# -- a butler's own ------------------------------------------------------------------------------------


@pytest.mark.scenario("S001-08")
async def test_own_tools_are_functions_registered_by_the_butlers_module(
    postbox: PostboxButler, tmp_path: Path
) -> None:
    # Written as async functions in its tools folder ...
    assert (ROSTER / "health" / "tools" / "measurements.py").is_file()
    tools = own_tools(ROSTER / "health")
    assert inspect.iscoroutinefunction(tools.measurement_log)
    # ... wired by a module of its folder, which its butler.toml declares.
    copy_roster("health", postbox.directory, postbox.database_name)
    assert "[modules.health]" in (postbox.directory / "butler.toml").read_text()
    health = postbox.make_in()
    await health.start()
    module = next(one for one in health.modules if one.name == "health")
    assert isinstance(module, Module)
    assert type(module).__module__ == "butlers_roster_health.modules"
    own = {spec_of(function).name for function in module.tools}
    assert "measurement_log" in own
    await assert_callers_do_not_see_what_is_injected(health, postbox, own)

    # No other butler has them ...
    assert not own & await offered_by(postbox, "general", tmp_path)
    # ... nor has its own, when no module wires them.
    assert not own & await offered_by(postbox, "health", tmp_path, without_module)
    assert callable(own_tools(postbox.directory).measurement_log)


async def assert_callers_do_not_see_what_is_injected(
    health: Butler, postbox: PostboxButler, own: set[str]
) -> None:
    token = postbox.key.mint(CallerKind.OWNER, "owner", "health")
    async with Client(StreamableHttpTransport(health.url, auth=token)) as client:
        shown = {tool.name: tool for tool in await client.list_tools() if tool.name in own}
        assert set(shown) == own
        for tool in shown.values():
            takes = set(tool.input_schema["properties"])
            assert not takes & {"ctx", "context", "pool", "db", "connection"}
        weight = {"type": "weight", "value": "80.4", "unit": "kg"}
        await client.call_tool("measurement_log", weight)
    assert await postbox.rows("SELECT type, value::text, unit FROM measurements") == [weight]


async def offered_by(
    postbox: PostboxButler,
    name: str,
    tmp_path: Path,
    change: Callable[[Path], None] = lambda _directory: None,
) -> set[str]:
    await postbox.butler.stop()
    postbox.directory = tmp_path / f"another-{name}"
    copy_roster(name, postbox.directory, postbox.database_name)
    change(postbox.directory)
    await postbox.make_in().start()
    return set(await postbox.offered())


def without_module(directory: Path) -> None:
    toml = directory / "butler.toml"
    toml.write_text(toml.read_text().replace("[modules.health]", ""))


def own_tools(directory: Path) -> Any:
    """Import the file of the butler's tools, as its module does."""
    load_module(directory, "health", "health")
    return importlib.import_module("butlers_roster_health.tools.measurements")
