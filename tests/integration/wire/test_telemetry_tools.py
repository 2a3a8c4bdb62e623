"""Each call of a tool is a span at a real collector, and a row of the session's audit."""

from __future__ import annotations

import json
from typing import Any

import pytest

from butlers.config.settings import Settings
from butlers.domain.caller import CallerKind
from butlers.domain.clock import uuid7
from butlers.domain.errors import ButlersError
from butlers.domain.session import Outcome, SessionRequest
from butlers.domain.trace import TraceContext, in_trace
from butlers.wire.telemetry import collecting
from support.collector import Collector, Seen
from support.in_process import InProcessButler, call_body
from support.messages import request_context
from support.tester_folder import SECRET


def calls(collector: Collector) -> dict[str, Seen]:
    return {
        span.attributes["butlers.tool"]: span
        for span in collector.spans()
        if span.name.startswith("butler.tool.")
    }


async def audit(tester: InProcessButler, session_id: Any) -> list[dict[str, Any]]:
    return await tester.rows(
        "SELECT * FROM tool_calls WHERE session_id = $1 ORDER BY id", session_id
    )


@pytest.mark.scenario("S001-10")
async def test_a_call_is_a_span_and_a_row_of_the_sessions_audit(
    tester: InProcessButler, collector: Collector, settings: Settings
) -> None:
    request = request_context()
    session = SessionRequest(uuid7(), "keep milk", "route", request, request.request_id)
    with collecting(settings):
        result = await tester.butler.spawner.run(session)
    assert result.outcome is Outcome.OK

    # THEN: a span with the tool's name, arguments, result and duration
    spans = calls(collector)
    assert set(spans) == {"write", "notify"}
    write = spans["write"]
    assert write.name == "butler.tool.write"
    assert write.json("butlers.tool.arguments") == {"text": "milk"}
    assert write.json("butlers.tool.result") == {"number": 1, "text": "milk"}
    assert write.ended_ns > write.started_ns > 0
    assert write.attributes["butlers.butler"] == "tester"
    assert write.attributes["butlers.caller.kind"] == "session"
    assert write.attributes["butlers.session"] == str(session.session_id)
    assert write.attributes["butlers.request"] == str(request.request_id)
    assert not write.failed

    # AND: the session's tool_calls audit log has it
    rows = await audit(tester, session.session_id)
    assert [(row["tool"], row["ok"]) for row in rows] == [("write", True), ("notify", True)]
    assert json.loads(rows[0]["arguments"]) == {"text": "milk"}
    assert rows[0]["request_id"] == request.request_id
    assert 0 <= rows[0]["duration_ms"] <= (write.ended_ns - write.started_ns) / 1e6 + 1

    (opened,) = (span for span in collector.spans() if span.name == "butler.session")
    assert {span.parent_id for span in spans.values()} == {opened.span_id}
    assert {span.trace_id for span in spans.values()} == {opened.trace_id}


@pytest.mark.parametrize(
    ("tool", "arguments", "failure"),
    [
        ("write_and_fail", {"text": "x"}, "there is no such shelf"),
        ("write_and_crash", {"text": "x"}, "write_and_crash failed: ZeroDivisionError"),
        ("typed", {"count": 99}, "typed: count: Input should be less than or equal to 9"),
        ("no.such.tool", {}, "there is no tool 'no.such.tool'"),
        ("register", {}, "there is no tool 'register'"),
    ],
)
async def test_a_call_that_fails_is_a_failed_span(
    tester: InProcessButler,
    collector: Collector,
    settings: Settings,
    tool: str,
    arguments: dict[str, Any],
    failure: str,
) -> None:
    with collecting(settings):
        async with tester.session(uuid7()) as client:
            with pytest.raises(ButlersError):
                await client.call(tool, arguments)
    span = calls(collector)[tool]
    assert span.failed
    assert span.failure == failure
    assert SECRET.encode() not in collector.raw()


async def test_every_caller_and_every_kind_of_tool_has_its_span(
    tester: InProcessButler, collector: Collector, settings: Settings
) -> None:
    with collecting(settings):
        async with tester.owner() as owner, tester.peer("switchboard") as peer:
            await owner.call("status")
            await owner.call("trigger", {"prompt": "ping"})
            await peer.call("quick", {"text": "hi"})
    spans = calls(collector)
    assert {name: span.attributes["butlers.caller.kind"] for name, span in spans.items()} == {
        "status": "owner",
        "trigger": "owner",
        "quick": "peer",
    }
    assert spans["quick"].attributes["butlers.caller.name"] == "switchboard"
    (session,) = (span for span in collector.spans() if span.name == "butler.session")
    assert session.parent_id == spans["trigger"].span_id


async def test_mcp_library_adds_no_spans(
    tester: InProcessButler, collector: Collector, settings: Settings
) -> None:
    with collecting(settings):
        async with tester.owner() as owner:
            await owner.call("quick")
    assert [(span.scope, span.name) for span in collector.spans()] == [
        ("butlers", "butler.tool.quick")
    ]


async def test_callers_trace_is_continued(
    tester: InProcessButler, collector: Collector, settings: Settings
) -> None:
    above = TraceContext.new().child()
    with collecting(settings):
        async with tester.owner() as owner:
            with in_trace(above):
                await owner.call("quick")
            await owner.call("status")
    spans = calls(collector)
    assert (spans["quick"].trace_id, spans["quick"].parent_id) == (above.trace_id, above.span_id)
    assert spans["status"].trace_id != above.trace_id
    assert spans["status"].parent_id == ""


async def test_a_session_does_not_choose_its_trace(
    tester: InProcessButler, collector: Collector, settings: Settings
) -> None:
    """A header of a session's program may name a span of the session's trace, and no other."""
    with collecting(settings):
        async with tester.session(uuid7()) as client:
            with in_trace(TraceContext.of_trace("e" * 32).child()):
                await client.call("quick")
    assert calls(collector)["quick"].trace_id != "e" * 32


async def test_malformed_trace_header_is_ignored(
    tester: InProcessButler, collector: Collector, settings: Settings
) -> None:
    token = tester.token(CallerKind.OWNER)
    with collecting(settings):
        for header in ("", "garbage", f"00-{'0' * 32}-{'0' * 16}-01", "x" * 5_000):
            body = call_body("quick", {})
            answer = await tester.post(body, token, name="quick", traceparent=header)
            assert answer.status_code == 200
    spans = [span for span in collector.spans() if span.name == "butler.tool.quick"]
    assert len({span.trace_id for span in spans}) == 4
