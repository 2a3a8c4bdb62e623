"""The runtime that needs no model, on a real butler: match, tool, reply."""

from __future__ import annotations

import json
from typing import Any

import pytest

from butlers.domain.clock import uuid7
from butlers.domain.message import RequestContext, RouteDecision, RouteRequest
from butlers.domain.session import Outcome, SessionRequest, SessionResult
from butlers.queue.leased_queue import KEPT
from butlers.runtimes.reflex import NO_MODEL
from butlers.sessions.workspace import SessionEnvironment, Workspaces
from butlers.wire.client import McpClient
from butlers.wire.codec import encode
from support.in_process import InProcessButler
from support.messages import request_context
from support.waiting import until


async def run(
    tester: InProcessButler, prompt: str, request: RequestContext | None
) -> SessionResult:
    """Run one session by the butler's spawner, with or without a message."""
    session_id = uuid7()
    return await tester.butler.spawner.run(
        SessionRequest(
            session_id=session_id,
            prompt=prompt,
            trigger_source="route" if request else "trigger",
            request=request,
            request_id=request.request_id if request else session_id,
        )
    )


async def replies(tester: InProcessButler) -> list[dict[str, Any]]:
    rows = await tester.rows("SELECT payload FROM queue_items WHERE queue = 'notify' ORDER BY id")
    return [json.loads(row["payload"]) for row in rows]


async def test_reflex_runs_in_its_butlers_process(
    tester: InProcessButler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It needs no address, folder or environment; guard, journal and audit stay."""

    def refuse(*_: object, **__: object) -> Any:
        raise AssertionError("a reflex needs none")

    monkeypatch.setattr(McpClient, "call", refuse)
    monkeypatch.setattr(Workspaces, "open", refuse)
    monkeypatch.setattr(SessionEnvironment, "build", refuse)
    request = request_context()
    result = await run(tester, "Keep the blue book", request)
    assert result.ok
    assert tester.butler.guard.count == 0, "its token ended with it"
    journal = await tester.rows("SELECT tool, request_id FROM call_journal ORDER BY called_at")
    assert journal == [
        {"tool": name, "request_id": request.request_id} for name in ("write", "notify")
    ]
    again = await run(tester, "Keep the blue book", request)
    assert again.text == result.text
    assert await tester.rows("SELECT text FROM entries") == [{"text": "the blue book"}]
    assert len(await replies(tester)) == 1


async def test_reflex_calls_its_tool_and_replies(tester: InProcessButler) -> None:
    request = request_context()
    result = await run(tester, "Keep the blue book", request)

    assert (result.outcome, result.text) == (Outcome.OK, "Kept: the blue book as number 1.")
    assert [(call.tool, call.ok) for call in result.tool_calls] == [
        ("write", True),
        ("notify", True),
    ]
    assert await tester.rows("SELECT text FROM entries") == [{"text": "the blue book"}]
    (reply,) = await replies(tester)
    assert reply["message"] == result.text
    assert reply["request_id"] == str(request.request_id)
    assert (
        reply["intent"],
        reply["origin"],
        reply["channel"],
        reply["target"],
        reply["thread"],
    ) == (
        "reply",
        "tester",
        "console",
        "console:owner",
        "test",
    )
    (session,) = await tester.rows("SELECT * FROM sessions")
    assert (session["outcome"], session["success"], session["runtime"]) == ("ok", True, "reflex")
    assert (session["prompt"], session["output"]) == ("Keep the blue book", result.text)
    assert session["completed_at"] is not None
    calls = await tester.rows("SELECT tool, session_id, request_id, ok FROM tool_calls ORDER BY id")
    assert calls == [
        {"tool": name, "session_id": session["id"], "request_id": request.request_id, "ok": True}
        for name in ("write", "notify")
    ]


async def test_retry_of_a_request_repeats_no_call(tester: InProcessButler) -> None:
    request = request_context()
    first = await run(tester, "keep it", request)
    second = await run(tester, "keep it", request)
    assert first.text == second.text == "Kept: it as number 1."
    assert await tester.count("entries") == 1
    assert len(await replies(tester)) == 1
    assert await tester.count("sessions") == 2


@pytest.mark.parametrize(
    ("prompt", "told"),
    [
        ("lose it", "That did not work: there is no such shelf\ntry another shelf"),
        ("break it", "That did not work: write_and_crash failed: ZeroDivisionError"),
    ],
)
async def test_failed_tool_of_a_reflex_is_told_to_the_sender(
    tester: InProcessButler, prompt: str, told: str
) -> None:
    result = await run(tester, prompt, request_context())

    assert result.outcome is Outcome.TOOL_FAILED
    assert result.text.startswith(told)
    assert [call.ok for call in result.tool_calls] == [False, True]
    (reply,) = await replies(tester)
    assert reply["message"] == result.text
    assert await tester.count("entries") == 0
    (session,) = await tester.rows("SELECT outcome, success, error FROM sessions")
    assert (session["outcome"], session["success"]) == ("tool-failed", False)
    assert session["error"]


async def test_unmatched_prompt_does_nothing_and_says_so(tester: InProcessButler) -> None:
    result = await run(tester, "what is the meaning of it all?", request_context())
    assert (result.outcome, result.text, result.tool_calls) == (Outcome.NO_MATCH, NO_MODEL, ())
    assert await tester.count("tool_calls") == 0


async def test_reflex_of_a_trigger_sends_no_notification(tester: InProcessButler) -> None:
    async with tester.owner() as owner:
        answer = await owner.call("trigger", {"prompt": "keep this"})
    assert (answer["outcome"], answer["success"]) == ("ok", True)
    assert answer["output"] == "Kept: this as number 1."
    (call,) = answer["tool_calls"]
    assert (call["tool"], call["arguments"]) == ("write", {"text": "this"})
    assert (call["ok"], call["of_cli"], call["denied"]) == (True, False, False)
    assert await tester.count("entries") == 1
    assert await replies(tester) == []


async def test_a_trigger_that_fails_says_why(tester: InProcessButler) -> None:
    async with tester.owner() as owner:
        answer = await owner.call("trigger", {"prompt": "lose this"})
    assert (answer["outcome"], answer["success"]) == ("tool-failed", False)
    assert answer["error"] == "there is no such shelf"


async def test_reflex_without_a_tool_replies(tester: InProcessButler) -> None:
    result = await run(tester, "ping", request_context())
    assert (result.outcome, result.text) == (Outcome.OK, "pong")
    assert [call.tool for call in result.tool_calls] == ["notify"]


async def test_result_that_cannot_be_sent_is_replaced_by_a_notice(
    tester: InProcessButler,
) -> None:
    result = await run(tester, "shout hey 500000", request_context())
    assert result.outcome is Outcome.OK
    assert result.text.startswith("That is done, but its result cannot be shown here: the message")
    assert [(call.tool, call.ok) for call in result.tool_calls] == [
        ("say", True),
        ("notify", False),
        ("notify", True),
    ]
    (reply,) = await replies(tester)
    assert reply["message"] == result.text


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("keep one", "Kept: one as number 1."),
        ("lose one", "That did not work: there is no such shelf\ntry another shelf"),
        ("hello", NO_MODEL),
    ],
)
async def test_routed_message_is_answered_once(
    tester: InProcessButler, text: str, answer: str
) -> None:
    request = request_context()
    route = RouteRequest(request, "tester", text, RouteDecision("tester", "trigger", "test"))
    async with tester.peer("switchboard") as peer:
        await peer.call("route.execute", {"route": encode(route)})
        await peer.call("route.execute", {"route": encode(route)})

    async def handled() -> list[dict[str, Any]]:
        return await tester.rows(
            "SELECT * FROM queue_items WHERE queue = 'routes' AND (state = 'done' OR error = $1)",
            KEPT,
        )

    (item,) = await until("the route to be done or kept", handled)
    assert (item["state"], item["attempts"]) == (("ready", 0) if text == "hello" else ("done", 1))
    (reply,) = await replies(tester)
    assert (reply["message"], reply["request_id"]) == (answer, str(request.request_id))
    assert await tester.count("sessions") == 1
