"""Spans: attributes, masking and parents."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest
from structlog.contextvars import bound_contextvars, get_contextvars

from butlers.domain.caller import Caller, CallerKind
from butlers.domain.clock import uuid7
from butlers.domain.errors import NotFound
from butlers.domain.message import RequestContext
from butlers.domain.redaction import redactor
from butlers.domain.session import Outcome, SessionRequest, SessionResult, Usage
from butlers.domain.trace import TraceContext, current_trace, in_trace, traceparent_environment
from butlers.wire import telemetry
from butlers.wire.telemetry import backend, item_span, session_span, span, tool_span
from butlers.wire.telemetry.backend import Attributes, Instrument
from butlers.wire.telemetry.spans import LONGEST_ATTRIBUTE

OWNER = Caller(CallerKind.OWNER, "owner")
SECRET = "correct-horse-battery-staple"


@dataclass
class Recorded:
    name: str
    context: TraceContext
    parent: TraceContext | None
    serves: bool
    attributes: dict[str, Any] = field(default_factory=dict)
    failure: str | None = None
    ended: bool = False

    def end(self, attributes: Attributes, failure: str | None) -> None:
        self.attributes, self.failure, self.ended = dict(attributes), failure, True


class Kept:
    """A backend that keeps everything."""

    def __init__(self) -> None:
        self.spans: list[Recorded] = []
        self.measured: list[tuple[Instrument, float, dict[str, Any]]] = []

    def start(
        self, name: str, context: TraceContext, parent: TraceContext | None, *, serves: bool
    ) -> Recorded:
        self.spans.append(Recorded(name, context, parent, serves))
        return self.spans[-1]

    def measure(self, instrument: Instrument, value: float, attributes: Attributes) -> None:
        self.measured.append((instrument, value, dict(attributes)))

    def stop(self, within_s: float) -> None:
        pass


@pytest.fixture
def kept() -> Iterator[Kept]:
    made = Kept()
    backend.install(made)
    yield made
    backend.install(None)


def session_request(trace_id: str | None = None) -> SessionRequest:
    request = RequestContext(uuid7(), datetime.now(UTC), "c", "e", "s", trace_id=trace_id)
    return SessionRequest(uuid7(), "hello", "route", request, request.request_id)


# -- always there ---------------------------------------------------------------------------------


def test_without_a_collector_a_span_is_a_context_and_log_fields() -> None:
    assert not telemetry.is_on()
    with span("outer", butler="health") as outer:
        assert current_trace() == outer.context
        assert get_contextvars()["butler"] == "health"
        with span("inner") as inner:
            assert inner.context.trace_id == outer.context.trace_id
            assert inner.context.span_id != outer.context.span_id
            inner.set("x", 1)
            inner.fail("no")
        assert current_trace() == outer.context
    assert current_trace() is None
    assert "butler" not in get_contextvars()


def test_without_a_collector_nothing_is_scrubbed_or_serialised() -> None:
    class Untouchable(dict[str, Any]):
        def items(self) -> Any:
            raise AssertionError("looked at")

        __iter__ = keys = values = items

    with tool_span("t", butler="b", caller=OWNER, arguments=Untouchable(a=1)) as opened:
        opened.result(Untouchable(a=1))


def test_failed_span_restores_the_outer_trace() -> None:
    with pytest.raises(NotFound), bound_contextvars(butler="outer"):  # noqa: PT012
        with pytest.raises(KeyError), span("failing", butler="inner"):
            raise KeyError("x")
        assert get_contextvars() == {"butler": "outer"}
        with span("failing again"):
            raise NotFound("gone")
    assert current_trace() is None


# -- what it says ---------------------------------------------------------------------------------


def test_a_tool_span_captures_name_arguments_and_result(kept: Kept) -> None:
    request_id = uuid7()
    caller = Caller(CallerKind.PEER, "switchboard", None, request_id)
    with tool_span("say", butler="general", caller=caller, arguments={"text": "hi"}) as opened:
        opened.result({"said": "hi"})
    (seen,) = kept.spans
    assert seen.ended
    assert seen.serves
    assert seen.failure is None
    assert seen.name == "butler.tool.say"
    assert seen.attributes["butlers.tool"] == "say"
    assert seen.attributes["butlers.butler"] == "general"
    assert seen.attributes["butlers.caller.kind"] == "peer"
    assert seen.attributes["butlers.caller.name"] == "switchboard"
    assert seen.attributes["butlers.request"] == str(request_id)
    assert json.loads(seen.attributes["butlers.tool.arguments"]) == {"text": "hi"}
    assert json.loads(seen.attributes["butlers.tool.result"]) == {"said": "hi"}
    assert seen.attributes["butlers.tool.result.bytes"] == len('{"said": "hi"}')


def test_failed_span_names_the_error_type(kept: Kept) -> None:
    with pytest.raises(NotFound), tool_span("say", butler="b", caller=OWNER):
        raise NotFound("there is no such shelf")
    (seen,) = kept.spans
    assert seen.failure == "there is no such shelf"
    assert seen.attributes["error.type"] == "NotFound"


def test_secrets_are_masked_in_spans(kept: Kept) -> None:
    redactor.register(SECRET)
    with tool_span("t", butler="b", caller=OWNER, arguments={"password": SECRET}) as opened:
        opened.result({"echo": [SECRET]})
        opened.set("note", f"it is {SECRET}")
        opened.fail(f"no {SECRET} here")
    (seen,) = kept.spans
    assert SECRET not in repr(seen)
    assert "[redacted]" in seen.attributes["butlers.tool.arguments"]
    assert "[redacted]" in seen.attributes["butlers.tool.result"]
    assert seen.failure == "no [redacted] here"


def test_a_secret_at_the_cut_is_masked_before_it_is_cut(kept: Kept) -> None:
    redactor.register(SECRET)
    text = "x" * (LONGEST_ATTRIBUTE - 15) + SECRET
    with tool_span("t", butler="b", caller=OWNER, arguments={"a": text}):
        pass
    assert "correct" not in kept.spans[0].attributes["butlers.tool.arguments"]


def test_the_scrubber_can_be_replaced(kept: Kept) -> None:
    telemetry.set_scrubber(lambda value: "hidden")
    try:
        with tool_span("t", butler="b", caller=OWNER, arguments={"a": "b"}):
            pass
    finally:
        telemetry.set_scrubber(redactor.scrub_data)
    assert kept.spans[0].attributes["butlers.tool.arguments"] == '"hidden"'


@pytest.mark.parametrize(
    "value",
    [{"a": "é" * 100_000}, {"a": "\ud800\x00"}, {"a": float("nan")}, {"a": object()}, None, [1]],
)
def test_any_value_becomes_a_short_attribute(kept: Kept, value: Any) -> None:
    with tool_span("t", butler="b", caller=OWNER, arguments={"value": value}) as opened:
        opened.result(value)
    for shown in kept.spans[0].attributes.values():
        if isinstance(shown, str):
            shown.encode()
            assert len(shown) < LONGEST_ATTRIBUTE + 100


def test_long_tool_name_is_cut(kept: Kept) -> None:
    with tool_span("\ud800" + "x" * 100_000, butler="b", caller=OWNER):
        pass
    assert kept.spans[0].name.startswith("butler.tool.\\ud800xxx")
    assert len(kept.spans[0].name) == 100


# -- whose child it is ------------------------------------------------------------------------------


def test_the_first_span_of_a_trace_is_a_root(kept: Kept) -> None:
    with in_trace(TraceContext.of_trace("a" * 32)), span("first"), span("second"):
        pass
    first, second = kept.spans
    assert first.parent is None
    assert first.context.trace_id == second.context.trace_id == "a" * 32
    assert second.parent == first.context


def test_an_unsampled_trace_is_carried_and_not_recorded(kept: Kept) -> None:
    with in_trace(TraceContext("a" * 32, "b" * 16, sampled=False)), span("quiet"):
        assert traceparent_environment()["TRACEPARENT"].startswith("00-" + "a" * 32)
        assert traceparent_environment()["TRACEPARENT"].endswith("-00")
    assert kept.spans == []


def test_a_session_goes_on_in_the_trace_of_its_request(kept: Kept) -> None:
    with session_span(session_request("c" * 32), butler="b", runtime="reflex") as opened:
        assert opened.context.trace_id == "c" * 32
        assert get_contextvars()["session"] == str(opened._session.session_id)


def test_a_call_of_a_session_is_the_sessions_child(kept: Kept) -> None:
    """With a CLI that sends no trace, or another one."""
    asked = session_request()
    caller = Caller(CallerKind.SESSION, "b", asked.session_id, asked.request_id)
    with session_span(asked, butler="b", runtime="claude-code") as session:
        for said in (None, TraceContext.new().child()):
            with in_trace(said), tool_span("t", butler="b", caller=caller):
                pass
        inner = session.context.child()
        with in_trace(inner), tool_span("t", butler="b", caller=caller):
            pass
    _, silent, foreign, own = kept.spans
    assert silent.parent == foreign.parent == session.context
    assert own.parent == inner
    assert own.attributes["butlers.session"] == str(asked.session_id)
    with tool_span("late", butler="b", caller=caller):
        pass
    assert kept.spans[-1].context.trace_id != session.context.trace_id


@pytest.mark.parametrize(
    ("payload", "trace_id"),
    [
        ({"request": {"trace_id": "d" * 32}}, "d" * 32),
        ({"trace_id": "d" * 32, "request": None}, "d" * 32),
        ({"request": {"trace_id": "no id"}}, TraceContext.of_trace("no id").trace_id),
    ],
)
def test_a_queue_item_runs_in_the_trace_of_its_payload(payload: Any, trace_id: str) -> None:
    with item_span("routes", payload, 1) as opened:
        assert opened.context.trace_id == trace_id


@pytest.mark.parametrize("payload", [None, [], "x", {}, {"request": {}}, {"trace_id": 7}])
def test_a_payload_without_one_begins_a_trace(payload: Any) -> None:
    with span("of the loop") as around, item_span("notify", payload, 1) as opened:
        assert opened.context.trace_id != around.context.trace_id


# -- side by side -----------------------------------------------------------------------------------


async def test_sessions_side_by_side_do_not_mix(kept: Kept) -> None:
    meeting = asyncio.Barrier(10)

    async def one(number: int) -> None:
        asked = session_request(f"{number:032x}")
        caller = Caller(CallerKind.SESSION, "b", asked.session_id, asked.request_id)
        with session_span(asked, butler=f"butler{number}", runtime="r") as session:
            await meeting.wait()
            with tool_span("t", butler=f"butler{number}", caller=caller) as call:
                await meeting.wait()
                assert current_trace() == call.context
                assert call.context.trace_id == session.context.trace_id == f"{number:032x}"
                assert get_contextvars()["session"] == str(asked.session_id)
            await meeting.wait()
            assert current_trace() == session.context

    await asyncio.gather(*(one(number) for number in range(1, 11)))
    for seen in kept.spans:
        assert seen.attributes["butlers.butler"] == f"butler{int(seen.context.trace_id, 16)}"


async def test_decorated_function_has_a_span_per_call(kept: Kept) -> None:
    meeting = asyncio.Barrier(5)

    @tool_span("wait", butler="b", caller=OWNER)
    async def wait(number: int) -> TraceContext | None:
        await meeting.wait()
        return current_trace()

    found = await asyncio.gather(*(wait(number) for number in range(5)))
    assert len(set(found)) == 5
    assert {seen.context for seen in kept.spans} == set(found)
    assert all(seen.ended for seen in kept.spans)


# -- metrics ----------------------------------------------------------------------------------------


def test_session_metrics_are_recorded(kept: Kept) -> None:
    result = SessionResult(Outcome.OK, "", usage=Usage(1200, 34))
    with session_span(session_request(), butler="health", runtime="codex") as opened:
        opened.ended(result, 2.5, cost_usd=0.01)
    told = {(what, attributes.get("type")): value for what, value, attributes in kept.measured}
    assert told == {
        (Instrument.SESSION_DURATION, None): 2.5,
        (Instrument.SESSION_TOKENS, "input"): 1200,
        (Instrument.SESSION_TOKENS, "output"): 34,
        (Instrument.SESSION_COST, None): 0.01,
    }
    assert {attributes["butler"] for _, _, attributes in kept.measured} == {"health"}
    assert kept.spans[0].attributes["butlers.tokens.input"] == 1200


def test_unknown_cost_is_not_recorded(kept: Kept) -> None:
    with session_span(session_request(), butler="b", runtime="codex") as opened:
        opened.ended(SessionResult(Outcome.TIMED_OUT, "", error="took too long"), 60.0)
    assert [what for what, _, _ in kept.measured] == [Instrument.SESSION_DURATION]
    assert kept.spans[0].failure == "took too long"


def test_empty_queue_is_measured_as_zero(kept: Kept) -> None:
    telemetry.measure_queue("inbox", {"ready": 3})
    assert {attributes["state"]: value for _, value, attributes in kept.measured} == {
        "ready": 3,
        "leased": 0,
        "dead": 0,
    }
