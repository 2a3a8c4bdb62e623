"""The spawner: who thinks, with what, how many at once, and how a session is ended or continued."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from butlers.domain.clock import uuid7
from butlers.domain.errors import NotAuthenticated, NotFound, QueueFull
from butlers.domain.message import RequestContext
from butlers.domain.session import Access, Outcome, SessionRequest
from butlers.sessions import spawner
from butlers.wire.client import McpClient
from support.fake_runtime import FakeRuntime, for_ever, unreached
from support.in_process import InProcessButler, MakeButler
from support.waiting import until

REQUEST = RequestContext(
    uuid7(), datetime.now(UTC), "console", "console:owner", "owner", sender_roles=("owner",)
)


def asked(prompt: str = "think", source: str = "trigger", **more: Any) -> SessionRequest:
    return SessionRequest(uuid7(), prompt, source, **more)


def routed(prompt: str = "think") -> SessionRequest:
    request = replace(REQUEST, request_id=uuid7())
    return asked(prompt, "route", request=request, request_id=request.request_id)


async def row(tester: InProcessButler, session_id: UUID) -> dict[str, Any]:
    (found,) = await tester.rows("SELECT * FROM sessions WHERE id = $1", session_id)
    return found


# -- who thinks ------------------------------------------------------------------------------------


async def test_a_reflex_answers_before_a_model(tester: InProcessButler) -> None:
    tester.butler.spawner.model = model = FakeRuntime()
    session = asked("ping")
    result = await tester.butler.spawner.run(session)
    assert (result.text, model.asked) == ("pong", [])
    assert (await row(tester, session.session_id))["runtime"] == "reflex"


async def test_prompt_without_a_reflex_goes_to_the_model(tester: InProcessButler) -> None:
    tester.butler.spawner.model = model = FakeRuntime()
    session = asked("what is the meaning of it all?")
    result = await tester.butler.spawner.run(session)
    assert (result.text, len(model.asked)) == ("thought", 1)
    assert (await row(tester, session.session_id))["runtime"] == "claude-code"


async def test_reflexes_can_be_switched_off(make_butler: MakeButler) -> None:
    tester = make_butler(extra="[skills]\nreflexes = false\n")
    (await tester.start()).spawner.model = model = FakeRuntime()
    assert (await tester.butler.spawner.run(asked("ping"))).text == "thought"
    assert len(model.asked) == 1


# -- with what -------------------------------------------------------------------------------------


@pytest.mark.scenario("S000-02")
@pytest.mark.scenario("S001-29")
async def test_session_gets_its_butlers_server_and_folder(tester: InProcessButler) -> None:
    (tester.directory / "CLAUDE.md").write_text("You are Tester.")
    tester.butler.spawner.model = model = FakeRuntime()
    session = asked()
    await tester.butler.spawner.run(session)
    (given,) = model.asked
    assert given.system_prompt == "You are Tester."
    assert given.prompt.startswith("think\n\nIt is now ")
    assert given.server.url == f"{tester.butler.url}?runtime_session_id={session.session_id}"
    assert given.terms.workspace.cwd == tester.directory
    assert not given.terms.workspace.private.exists(), "it is gone when the session is"


async def test_session_row_has_all_known_facts(tester: InProcessButler) -> None:
    async def think(butler: McpClient) -> str:
        await butler.call("write", {"text": "one"})
        return "done"

    tester.butler.spawner.model = FakeRuntime(think)
    session = routed("remember one")
    await tester.butler.spawner.run(session)
    kept = await row(tester, session.session_id)
    assert kept["prompt"] == "remember one"
    assert kept["output"] == "done"
    assert (kept["outcome"], kept["success"], kept["error"]) == ("ok", True, None)
    assert (kept["input_tokens"], kept["output_tokens"], kept["cached_tokens"]) == (1_000, 100, 200)
    assert kept["model"] == "claude-sonnet-4-5"
    assert kept["cost_usd"] is not None
    assert kept["access"] == "sealed"
    assert kept["fixed_tokens"] > 0
    assert kept["duration_ms"] >= 0
    assert kept["completed_at"] >= kept["started_at"]
    (call,) = await tester.rows(
        "SELECT * FROM tool_calls WHERE session_id = $1", session.session_id
    )
    assert (call["tool"], json.loads(call["arguments"])) == ("write", {"text": "one"})
    assert call["ok"]
    assert len(call["result_digest"]) == 64
    assert call["result_bytes"] > 0


@pytest.mark.parametrize(
    ("source", "level"), [("trigger", "workspace"), ("route", "sealed"), ("schedule:x", "sealed")]
)
async def test_the_trigger_decides_what_may_be_touched(
    tester: InProcessButler, source: str, level: str
) -> None:
    tester.butler.spawner.model = model = FakeRuntime()
    session = asked(source=source)
    await tester.butler.spawner.run(session)
    assert model.asked[0].terms.grants.access == level
    assert (await row(tester, session.session_id))["access"] == level


async def test_access_level_that_the_cli_cannot_hold_seals_the_session(
    tester: InProcessButler,
) -> None:
    tester.butler.spawner.model = model = FakeRuntime(levels=frozenset({Access.SEALED}))
    session = asked()
    await tester.butler.spawner.run(session)
    assert model.asked[0].terms.grants.access is Access.SEALED
    kept = await row(tester, session.session_id)
    assert kept["access"] == "sealed"
    assert kept["sealed_because"] == "claude-code cannot hold workspace"


# -- the guard -------------------------------------------------------------------------------------


async def test_token_is_invalid_after_its_session(tester: InProcessButler) -> None:
    tester.butler.spawner.model = model = FakeRuntime()
    await tester.butler.spawner.run(asked())
    with pytest.raises(NotAuthenticated):
        async with tester.client(model.asked[0].server.token) as late:
            await late.call("status")


async def test_token_expires(tester: InProcessButler) -> None:
    with (
        tester.butler.guard.admit(asked(), lifetime_s=-1) as token,
        pytest.raises(NotAuthenticated),
    ):
        async with tester.client(token) as late:
            await late.call("status")


async def test_session_has_only_its_given_tools(tester: InProcessButler) -> None:
    with tester.butler.guard.admit(asked(tools=frozenset({"quick"}))) as token:
        async with tester.client(token) as client:
            assert {tool["name"] for tool in await client.list_tools()} == {"quick"}
            assert (await client.call("quick"))["caller"] == "session"
            with pytest.raises(Exception, match="may not call write"):
                await client.call("write", {"text": "no"})
    assert await tester.count("entries") == 0


async def test_an_address_that_names_another_session_is_refused(tester: InProcessButler) -> None:
    mine = asked()
    with tester.butler.guard.admit(mine) as token:
        for session_id, works in ((mine.session_id, True), (uuid7(), False)):
            url = f"{tester.butler.url}?runtime_session_id={session_id}"
            async with McpClient("tester", url, lambda: token) as client:
                if works:
                    await client.call("quick")
                else:
                    with pytest.raises(NotAuthenticated):
                        await client.call("quick")


async def test_two_sessions_do_not_see_each_others_request(tester: InProcessButler) -> None:
    meeting = asyncio.Barrier(2)

    async def think(butler: McpClient) -> str:
        await meeting.wait()
        answer = await butler.call("notify", {"message": "same words", "intent": "reply"})
        return str(answer["delivery_id"])

    tester.butler.spawner._slots = asyncio.Semaphore(2)
    tester.butler.spawner.model = FakeRuntime(think)
    sessions = [routed("one"), routed("two")]
    await asyncio.gather(*(tester.butler.spawner.run(session) for session in sessions))
    sent = await tester.rows("SELECT payload->>'request_id' AS id FROM queue_items")
    assert {found["id"] for found in sent} == {str(session.request_id) for session in sessions}


# -- how many at once ------------------------------------------------------------------------------


@pytest.mark.scenario("S001-32")
async def test_excess_triggers_queue_and_an_overflow_is_refused(make_butler: MakeButler) -> None:
    tester = make_butler(extra="[butler.runtime]\nmax_concurrent_sessions = 2\nmax_queued = 3\n")
    spawner = (await tester.start()).spawner
    gate = asyncio.Event()
    at_once, most = 0, 0

    async def think(butler: McpClient) -> str:
        nonlocal at_once, most
        await butler.list_tools()
        at_once += 1
        most = max(most, at_once)
        await gate.wait()
        at_once -= 1
        return "done"

    spawner.model = FakeRuntime(think)
    running = [asyncio.create_task(spawner.run(asked())) for _ in range(5)]
    try:
        await until("two to run and three to wait", lambda: at_once == 2 and spawner._queued == 3)
        with pytest.raises(QueueFull) as refused:
            await spawner.run(asked())
        assert refused.value.retryable
    finally:
        gate.set()
    assert [result.text for result in await asyncio.gather(*running)] == ["done"] * 5
    assert most == 2


async def test_session_that_never_reached_its_butler_fails(
    tester: InProcessButler,
) -> None:
    tester.butler.spawner.model = FakeRuntime(unreached)
    session = asked()
    result = await tester.butler.spawner.run(session)
    assert result.outcome is Outcome.MCP_UNAVAILABLE
    assert (await row(tester, session.session_id))["success"] is False


async def test_session_cannot_trigger_its_own_butler(tester: InProcessButler) -> None:
    async with tester.session() as session:
        assert "trigger" not in {tool["name"] for tool in await session.list_tools()}
        with pytest.raises(Exception, match="may not call trigger"):
            await session.call("trigger", {"prompt": "again"})


# -- how it ends -----------------------------------------------------------------------------------


async def test_a_session_is_stopped_by_its_owner(tester: InProcessButler) -> None:
    tester.butler.spawner.model = FakeRuntime(for_ever)
    session = asked()
    running = asyncio.create_task(tester.butler.spawner.run(session))
    await until("it to run", lambda: tester.butler.guard.count == 1)
    async with tester.owner() as owner:
        listed = await owner.call("sessions_list", {"running": True})
        assert [found["id"] for found in listed["sessions"]] == [str(session.session_id)]
        stopped = await owner.call("sessions_stop", {"session_id": str(session.session_id)})
        assert stopped == {"stopped": [str(session.session_id)]}
        result = await running
        assert result.outcome is Outcome.CANCELLED
        assert (await row(tester, session.session_id))["outcome"] == "cancelled"
        assert (await owner.call("sessions_list", {"running": True})) == {"sessions": []}
        with pytest.raises(NotFound):
            await owner.call("sessions_stop", {"session_id": str(session.session_id)})


async def test_stop_all_stops_every_session(tester: InProcessButler) -> None:
    tester.butler.spawner._slots = asyncio.Semaphore(3)
    tester.butler.spawner.model = FakeRuntime(for_ever)
    running = [asyncio.create_task(tester.butler.spawner.run(asked())) for _ in range(3)]
    await until("all to run", lambda: tester.butler.guard.count == 3)
    async with tester.owner() as owner:
        assert len((await owner.call("sessions_stop"))["stopped"]) == 3
    assert {(await session).outcome for session in running} == {Outcome.CANCELLED}


async def test_session_running_when_the_butler_was_killed_is_closed_as_crashed(
    tester: InProcessButler,
) -> None:
    session_id = uuid7()
    async with tester.butler.database.transaction() as connection:
        await connection.execute(
            "INSERT INTO sessions (id, trigger_source, runtime, prompt) VALUES ($1, 'route', 'x', 'y')",
            session_id,
        )
    await tester.butler.stop()
    await tester.start()
    kept = await row(tester, session_id)
    assert (kept["outcome"], kept["success"]) == ("crashed", False)
    assert "ended while the session ran" in kept["error"]


async def test_retry_prompt_lists_the_earlier_calls(
    tester: InProcessButler,
) -> None:
    async def think(butler: McpClient) -> str:
        await butler.call("quick")
        await butler.call("write", {"text": "once"})
        raise RuntimeError("cut off")

    tester.butler.spawner.model = FakeRuntime(think)
    session = routed("remember once")
    with pytest.raises(RuntimeError):
        await tester.butler.spawner.run(session)
    tester.butler.spawner.model = second = FakeRuntime()
    await tester.butler.spawner.run(replace(session, session_id=uuid7()))
    (given,) = second.asked
    assert '- write {"text": "once"}' in given.prompt
    assert "quick" not in given.prompt, "what only reads may be read again"
    assert (await row(tester, session.session_id))["outcome"] == "crashed"


async def test_the_time_limit_of_the_configuration_is_handed_on(make_butler: MakeButler) -> None:
    tester = make_butler(extra="[butler.runtime]\ntimeout_s = 7\nargs = ['--x']\nmodel = 'm'\n")
    (await tester.start()).spawner.model = model = FakeRuntime()
    await tester.butler.spawner.run(asked())
    terms = model.asked[0].terms
    assert (terms.limits.total_s, terms.args, terms.model) == (7, ("--x",), "m")


async def test_session_limit_ends_a_runtime_without_its_own(
    make_butler: MakeButler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spawner, "TOKEN_GRACE_S", 0.0)
    tester = make_butler(extra="[butler.runtime]\ntimeout_s = 1\n")
    (await tester.start()).spawner.model = FakeRuntime(for_ever)
    session = asked()
    result = await tester.butler.spawner.run(session)
    assert result.outcome is Outcome.TIMED_OUT
    assert result.error == "The session took longer than 1 s and was ended."
    assert (await row(tester, session.session_id))["outcome"] == "timed-out"
    assert tester.butler.guard.count == 0


async def test_timeout_of_another_part_is_not_a_session_timeout(tester: InProcessButler) -> None:
    async def think(_butler: McpClient) -> str:
        raise TimeoutError

    tester.butler.spawner.model = FakeRuntime(think)
    session = asked()
    with pytest.raises(TimeoutError):
        await tester.butler.spawner.run(session)
    found = await row(tester, session.session_id)
    assert (found["outcome"], found["error"]) == ("crashed", "TimeoutError")


async def test_module_context_is_at_the_end_of_the_system_prompt(
    tester: InProcessButler, monkeypatch: pytest.MonkeyPatch
) -> None:
    (module,) = tester.butler.modules
    (tester.directory / "CLAUDE.md").write_text("You are Tester.")

    async def remember(session: SessionRequest) -> str:
        return f"# Memory\nof {session.prompt}"

    monkeypatch.setattr(module, "session_context", remember)
    tester.butler.spawner.model = model = FakeRuntime()
    await tester.butler.spawner.run(asked("tea"))
    assert model.asked[0].system_prompt == "You are Tester.\n\n# Memory\nof tea"

    async def fail(session: SessionRequest) -> str:
        raise RuntimeError("no memory today")

    monkeypatch.setattr(module, "session_context", fail)
    await tester.butler.spawner.run(asked("tea"))
    assert model.asked[1].system_prompt == "You are Tester."
