"""The call pipeline: permissions, one transaction, the journal, and errors."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from butlers.domain.caller import CallerKind
from butlers.domain.clock import uuid7
from butlers.domain.errors import (
    ConfigInvalid,
    InternalError,
    InvalidArguments,
    InvalidMessage,
    NotAllowed,
    NotAuthenticated,
    NotFound,
    PhaseFailed,
)
from butlers.domain.session import SessionRequest
from butlers.wire.tokens import FleetKey
from support.in_process import InProcessButler, MakeButler, call_body
from support.messages import request_context
from support.tester_folder import SECRET, TOOLS
from support.waiting import until

OWNER, PEER, SESSION = CallerKind.OWNER, CallerKind.PEER, CallerKind.SESSION
COMMON = {
    "status": {OWNER, PEER, SESSION},
    "shared.status": {PEER},
    "sessions_list": {OWNER},
    "trigger": {OWNER},
    "route.execute": {PEER},
    "route_execute": {PEER},
    "notify": {OWNER, SESSION},
}
BY_ROLE: dict[str, dict[str, set[CallerKind]]] = {
    "switchboard": {"ingest": {OWNER}, "register": {PEER}, "deliver": {PEER}},
    "messenger": {"deliver": {PEER}, "console_receive": {OWNER}, "console_shown": {OWNER}},
    "general": {},
}


# -- who may -------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", BY_ROLE)
async def test_tools_are_listed_to_and_accepted_from_permitted_callers(
    make_butler: MakeButler, role: str
) -> None:
    tester = make_butler(role)
    await tester.start()
    core = COMMON | BY_ROLE[role]
    async with (
        tester.owner() as owner,
        tester.peer("switchboard") as peer,
        tester.session() as session,
    ):
        for kind, client in ((OWNER, owner), (PEER, peer), (SESSION, session)):
            listed = {tool["name"] for tool in await client.list_tools()} & set(core)
            assert listed == {name for name, callers in core.items() if kind in callers}
            for name in set(core) - listed:
                with pytest.raises(NotAllowed, match=f"the {kind} may not call"):
                    await client.call(name, {})
    # The rejected attempts of the session are audited; nothing was done.
    rows = await tester.rows("SELECT DISTINCT caller_kind, ok FROM tool_calls")
    assert rows == [{"caller_kind": "session", "ok": False}]


async def test_context_is_not_an_argument(tester: InProcessButler) -> None:
    async with tester.owner() as owner:
        for tool in await owner.list_tools():
            assert "ctx" not in tool["inputSchema"]["properties"]
            assert tool["description"]
            needed = dict.fromkeys(tool["inputSchema"].get("required", ()), "x")
            with pytest.raises(InvalidArguments, match="ctx"):
                await owner.call(tool["name"], {**needed, "ctx": {}})


async def test_session_token_expires_with_its_session(tester: InProcessButler) -> None:
    asked = SessionRequest(uuid7(), "test", "test", request_id=uuid7())
    with tester.butler.guard.admit(asked) as token:
        async with tester.client(token) as client:
            assert (await client.call("quick"))["caller"] == "session"
        assert tester.butler.guard.count == 1
    assert tester.butler.guard.count == 0
    async with tester.client(token) as client:
        with pytest.raises(NotAuthenticated):
            await client.call("quick")
        with pytest.raises(NotAuthenticated):
            await client.list_tools()


async def test_session_token_expires_when_its_session_crashes(tester: InProcessButler) -> None:
    asked = SessionRequest(uuid7(), "test", "test")
    with pytest.raises(RuntimeError), tester.butler.guard.admit(asked) as token:
        raise RuntimeError("the runtime crashed")
    assert tester.butler.guard.find(token) is None


async def test_session_token_is_valid_for_its_butler_only(make_butler: MakeButler) -> None:
    one, other = make_butler(), make_butler("general")
    await one.start()
    await other.start()
    with one.butler.guard.admit(SessionRequest(uuid7(), "test", "test")) as token:
        async with other.client(token) as client:
            with pytest.raises(NotAuthenticated):
                await client.call("status")
        async with one.client(token) as client:
            await client.call("status")


async def test_token_for_another_butler_or_fleet_is_rejected(
    tester: InProcessButler,
) -> None:
    strangers = [
        tester.token(PEER, "general", audience="health"),
        tester.token(OWNER, audience="health"),
        FleetKey(b"x" * 32).mint(OWNER, "owner", "tester"),
        tester.token(PEER, "general", lifetime_s=-5),
    ]
    for token in strangers:
        async with tester.client(token) as client:
            with pytest.raises(NotAuthenticated):
                await client.call("quick")


async def test_caller_is_identified_by_its_token(tester: InProcessButler) -> None:
    async with tester.peer("switchboard") as peer:
        assert await peer.call("quick") == {
            "text": "hello",
            "caller": "peer",
            "name": "switchboard",
        }


# -- one transaction -------------------------------------------------------------------------------


async def test_effect_journal_and_audit_commit_together(tester: InProcessButler) -> None:
    request_id = uuid7()
    async with tester.session(request_id) as session:
        assert await session.call("write", {"text": "one"}) == {"number": 1, "text": "one"}

    assert await tester.rows("SELECT text FROM entries") == [{"text": "one"}]
    (journaled,) = await tester.rows("SELECT * FROM call_journal")
    assert (journaled["request_id"], journaled["tool"], journaled["ordinal"]) == (
        request_id,
        "write",
        0,
    )
    (audited,) = await tester.rows("SELECT * FROM tool_calls")
    assert (audited["tool"], audited["ok"], audited["replayed"]) == ("write", True, False)
    assert (audited["caller_kind"], audited["caller"]) == ("session", "tester")
    assert (audited["request_id"], audited["session_id"]) == (request_id, journaled["session_id"])
    assert json.loads(audited["arguments"]) == {"text": "one"}
    # One transaction wrote all three.
    (same,) = await tester.rows(
        "SELECT e.xmin = j.xmin AND j.xmin = t.xmin AS same"
        " FROM entries e, call_journal j, tool_calls t"
    )
    assert same["same"]


@pytest.mark.parametrize(
    ("tool", "error", "message"),
    [
        ("write_and_fail", NotFound, "there is no such shelf"),
        ("write_and_crash", InternalError, "write_and_crash failed: ZeroDivisionError"),
    ],
)
async def test_error_rolls_back_everything_but_the_audit(
    tester: InProcessButler, tool: str, error: type[Exception], message: str
) -> None:
    async with tester.session(uuid7()) as session:
        with pytest.raises(error, match=message):
            await session.call(tool, {"text": "gone"})

    assert await tester.count("entries") == 0
    assert await tester.count("call_journal") == 0
    (audited,) = await tester.rows("SELECT tool, ok, replayed, error FROM tool_calls")
    assert audited == {"tool": tool, "ok": False, "replayed": False, "error": message}


async def test_read_and_long_calls_of_sessions_are_audited(tester: InProcessButler) -> None:
    async with tester.session(uuid7()) as session:
        await session.call("quick")
        await session.call("status")
    rows = await tester.rows("SELECT tool, ok FROM tool_calls ORDER BY id")
    assert rows == [{"tool": "quick", "ok": True}, {"tool": "status", "ok": True}]
    assert await tester.count("call_journal") == 0


async def test_owners_write_is_audited_and_not_journaled(tester: InProcessButler) -> None:
    async with tester.owner() as owner:
        await owner.call("write", {"text": "same"})
        await owner.call("write", {"text": "same"})
        await owner.call("quick")
    assert await tester.count("entries") == 2
    assert await tester.count("call_journal") == 0
    assert (
        await tester.rows("SELECT caller_kind, tool FROM tool_calls")
        == [{"caller_kind": "owner", "tool": "write"}] * 2
    )


# -- once per request ----------------------------------------------------------------------------


async def audit(tester: InProcessButler) -> list[tuple[bool, bool]]:
    rows = await tester.rows("SELECT ok, replayed FROM tool_calls ORDER BY id")
    return [(row["ok"], row["replayed"]) for row in rows]


@pytest.mark.parametrize("tool", ["write", "write_null", "write_nested", "write_list"])
async def test_second_run_gets_the_recorded_result(tester: InProcessButler, tool: str) -> None:
    request_id, results = uuid7(), []
    for _run in range(3):
        async with tester.session(request_id) as session:
            results.append(await session.call(tool, {"text": "once"}))

    assert results[0] == results[1] == results[2]
    assert (results[0] is None) == (tool == "write_null")
    assert await tester.count("entries") == 1
    assert await audit(tester) == [(True, False), (True, True), (True, True)]


async def test_replayed_answer_is_identical_on_the_wire(tester: InProcessButler) -> None:
    request_id, answers = uuid7(), []
    for _run in range(2):
        asked = SessionRequest(uuid7(), "test", "test", request_id=request_id)
        with tester.butler.guard.admit(asked) as token:
            answers.append(await tester.call_raw("write_list", {"text": "once"}, token))
    assert answers[0] == answers[1]
    assert answers[0]["result"]["structuredContent"] == {"result": [1, "once"]}


async def test_same_call_twice_in_one_run_happens_twice(tester: InProcessButler) -> None:
    request_id = uuid7()
    for _run in range(2):
        async with tester.session(request_id) as session:
            first = await session.call("write", {"text": "same"})
            second = await session.call("write", {"text": "same"})
            assert (first["number"], second["number"]) == (1, 2)
    assert await tester.count("entries") == 2
    assert await audit(tester) == [(True, False), (True, False), (True, True), (True, True)]


async def test_another_request_other_arguments_or_another_tool_happen_again(
    tester: InProcessButler,
) -> None:
    request_id = uuid7()
    async with tester.session(request_id) as session:
        await session.call("write", {"text": "a"})
        await session.call("write", {"text": "b"})
        await session.call("write_null", {"text": "a"})
    async with tester.session(uuid7()) as session:
        await session.call("write", {"text": "a"})
    async with tester.session() as session:  # without a request there is no journal
        await session.call("write", {"text": "a"})
    assert await tester.count("entries") == 5
    assert await tester.count("call_journal") == 4


async def test_order_of_arguments_does_not_matter(tester: InProcessButler) -> None:
    request_id = uuid7()
    async with tester.session(request_id) as session:
        await session.call("notify", {"message": "hello", "channel": "console"})
    async with tester.session(request_id) as session:
        await session.call("notify", {"channel": "console", "message": "hello"})
    assert await tester.count("queue_items") == 1


async def test_failed_call_is_repeated_by_the_next_run(tester: InProcessButler) -> None:
    request_id = uuid7()
    for _run in range(2):
        async with tester.session(request_id) as session:
            with pytest.raises(NotFound):
                await session.call("write_and_fail", {"text": "x"})
    assert await audit(tester) == [(False, False), (False, False)]


async def test_success_after_a_failure_is_replayed_by_the_next_run(
    tester: InProcessButler,
) -> None:
    request_id = uuid7()
    async with tester.session(request_id) as session:
        with pytest.raises(NotFound):
            await session.call("write_when_open", {"text": "x"})
        tester.open_gate()
        first = await session.call("write_when_open", {"text": "x"})
    async with tester.session(request_id) as session:
        assert await session.call("write_when_open", {"text": "x"}) == first
    assert await tester.count("entries") == 1


async def test_concurrent_runs_of_one_request_have_one_effect(tester: InProcessButler) -> None:
    request_id = uuid7()

    async def run() -> Any:
        async with tester.session(request_id) as session:
            return await session.call("write", {"text": "once"})

    results = await asyncio.gather(*(run() for _ in range(8)))
    assert all(result == results[0] for result in results)
    assert await tester.count("entries") == 1
    assert sorted(await audit(tester)) == [(True, False)] + [(True, True)] * 7


async def test_concurrent_second_run_waits_for_the_first_to_commit(tester: InProcessButler) -> None:
    request_id = uuid7()

    async def run() -> Any:
        async with tester.session(request_id) as session:
            return await session.call("slow_write", {"label": "only"})

    first = asyncio.create_task(run())
    await tester.until_running("only")
    second = asyncio.create_task(run())
    await until("the second to wait for the first", lambda: blocked(tester))
    tester.open_gate()
    assert await first == await second == {"label": "only"}
    assert await tester.count("entries") == 1


async def blocked(tester: InProcessButler) -> list[dict[str, Any]]:
    """Return the backends that wait for another transaction."""
    return await tester.rows(
        "SELECT 1 FROM pg_stat_activity"
        " WHERE datname = current_database() AND cardinality(pg_blocking_pids(pid)) > 0"
    )


# -- how it fails ----------------------------------------------------------------------------------


async def test_crash_is_logged_in_full_and_hidden_from_the_caller(
    tester: InProcessButler,
) -> None:
    with capture_logs() as logs:
        answer = await tester.call_raw("write_and_crash", {"text": "x"}, tester.owner_token)

    assert answer["result"]["isError"] is True
    error = answer["result"]["structuredContent"]["error"]
    assert error["code"] == "internal_error"
    assert error["retryable"] is False
    said = json.dumps(answer)
    for leak in (SECRET, "4711", "Traceback", "modules/__init__", "division by zero", "line "):
        assert leak not in said
    (crash,) = [entry for entry in logs if entry["event"] == "tool crashed"]
    assert crash["tool"] == "write_and_crash"
    assert SECRET in str(crash["exc_info"])
    assert await tester.rows("SELECT ok FROM tool_calls") == [{"ok": False}]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({}, "count"),
        ({"count": "many-4711"}, "count"),
        ({"count": 4711}, "count"),
        ({"count": None}, "count"),
        ({"count": 1, "names": "4711"}, "names"),
        ({"count": 1, "names": [["4711"]]}, "names.0"),
        ({"count": 1, "undeclared": 4711}, "undeclared"),
        ({"count": 1, "ctx": {"caller": 4711}}, "ctx"),
        ({"count": 1, "self": 4711}, "self"),
    ],
)
async def test_invalid_arguments_are_named_without_their_values(
    tester: InProcessButler, arguments: dict[str, Any], named: str
) -> None:
    answer = await tester.call_raw("typed", arguments, tester.owner_token)
    error = answer["result"]["structuredContent"]["error"]
    assert error["code"] == "invalid_arguments"
    assert f" {named}: " in error["message"]
    assert error["hint"] == "typed takes count, names"
    assert "4711" not in json.dumps(answer)


async def test_invalid_arguments_of_a_write_are_audited(tester: InProcessButler) -> None:
    async with tester.session(uuid7()) as session:
        with pytest.raises(InvalidArguments, match="text"):
            await session.call("write", {"txt": "x"})
    assert await audit(tester) == [(False, False)]
    assert await tester.count("call_journal") == 0


async def test_unknown_tool_is_not_found(tester: InProcessButler) -> None:
    async with tester.owner() as owner:
        for name in ("no_such_tool", "QUICK", "quick.", "../status", "a" * 300):
            with pytest.raises(NotFound, match="there is no tool"):
                await owner.call(name, {})


@pytest.mark.parametrize("text", ["a\x00b", "lone \ud800 surrogate", "\udfff"])
async def test_unstorable_text_is_an_invalid_argument(tester: InProcessButler, text: str) -> None:
    answer = await tester.call_raw("write", {"text": text}, tester.owner_token)
    error = answer["result"]["structuredContent"]["error"]
    assert error["code"] == "invalid_arguments"
    assert error["hint"]
    assert await tester.count("entries") == 0
    assert await audit(tester) == [(False, False)]  # the attempt is audited


async def test_unstorable_text_in_an_undeclared_argument_is_audited(
    tester: InProcessButler,
) -> None:
    answer = await tester.call_raw("write", {"\x00\ud800": "\x00"}, tester.owner_token)
    assert answer["result"]["structuredContent"]["error"]["code"] == "invalid_arguments"
    assert await audit(tester) == [(False, False)]


async def test_huge_arguments_are_truncated_in_the_audit(tester: InProcessButler) -> None:
    text = "x" * 3_000_000
    async with tester.owner() as owner:
        answer = await owner.call("write", {"text": text})
        assert len(answer["text"]) == len(text)
        with pytest.raises(InvalidArguments):
            await owner.call("write", {"text": ["x" * 100] * 30_000})
    (size,) = await tester.rows("SELECT max(length(arguments::text)) AS n FROM tool_calls")
    assert size["n"] < 100_000


async def test_oversized_request_is_not_read(tester: InProcessButler) -> None:
    body = call_body("write", {"text": "x" * 5_000_000})
    answer = await tester.post(body, tester.owner_token, name="write")
    assert answer.status_code == 413
    async with tester.owner() as owner:
        await owner.call("write", {"text": "still here"})
    assert await tester.count("tool_calls") == 1


async def test_trigger_with_unstorable_text_is_rejected(tester: InProcessButler) -> None:
    async with tester.owner() as owner:
        for arguments in ({"prompt": "a\0"}, {"prompt": "a", "context": "\0"}, {"prompt": " "}):
            with pytest.raises(InvalidMessage):
                await owner.call("trigger", arguments)
    assert await tester.count("sessions") == 0


async def test_notification_with_unstorable_text_is_rejected(tester: InProcessButler) -> None:
    async with tester.session(uuid7()) as session:
        for arguments in ({"message": "a\0"}, {"message": "a", "recipient": "\0"}, {"message": ""}):
            with pytest.raises(InvalidMessage):
                await session.call("notify", arguments)
        with pytest.raises(InvalidArguments, match="no message to reply to"):
            await session.call("notify", {"message": "hello", "intent": "reply"})
    assert await tester.count("queue_items") == 0


# -- routes and envelopes --------------------------------------------------------------------------


def route(target: str = "tester", request_id: UUID | None = None) -> dict[str, Any]:
    context = request_context()
    return {
        "request": {
            "request_id": str(request_id or context.request_id),
            "received_at": context.received_at.isoformat(),
            "source_channel": "console",
            "source_endpoint_identity": "console:owner",
            "source_sender_identity": "owner",
        },
        "target": target,
        "text": "hello",
        "decision": {"target": target, "rule": "fallback", "reason": "test"},
        "schema_version": "route.v1",
    }


@pytest.mark.parametrize("name", ["route.execute", "route_execute"])
async def test_only_the_switchboard_may_route(tester: InProcessButler, name: str) -> None:
    async with tester.peer("general") as peer:
        with pytest.raises(NotAllowed, match="only the Switchboard"):
            await peer.call(name, {"route": route()})
    assert await tester.count("queue_items") == 0

    good = route()
    async with tester.peer("switchboard") as peer:
        assert await peer.call(name, {"route": good}) == {"status": "accepted", "duplicate": False}
        assert await peer.call(name, {"route": good}) == {"status": "accepted", "duplicate": True}
        with pytest.raises(InvalidArguments, match="this is tester, the route is for health"):
            await peer.call(name, {"route": route("health")})
    assert await tester.rows("SELECT count(*) AS n FROM queue_items WHERE queue = 'routes'") == [
        {"n": 1}
    ]


async def test_unknown_keys_in_a_route_are_rejected(tester: InProcessButler) -> None:
    odd = [
        {**route(), "extra": 1},
        {**route(), "request": {**route()["request"], "extra": 1}},
        {**route(), "decision": {**route()["decision"], "extra": 1}},
        {**route(), "schema_version": "route.v2"},
    ]
    async with tester.peer("switchboard") as peer:
        for one in odd:
            with pytest.raises(InvalidArguments, match=r"extra|schema_version"):
                await peer.call("route.execute", {"route": one})
    assert await tester.count("queue_items") == 0


# -- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("taken", ["status", "route_execute"])
async def test_duplicate_tool_name_stops_the_start(make_butler: MakeButler, taken: str) -> None:
    tester = make_butler(
        tools=TOOLS.replace("async def quick(", f"async def {taken}(").replace(
            "tools = (quick,", f"tools = ({taken},"
        )
    )
    with pytest.raises(PhaseFailed) as failed:
        await tester.start()
    assert isinstance(failed.value.__cause__, ConfigInvalid)
    for part in (repr(taken), "the core", "module bench"):
        assert part in failed.value.message
    assert failed.value.hint == "rename one of them"
