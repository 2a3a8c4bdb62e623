"""Export to a real OTLP collector, and its absence."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import structlog
from structlog.testing import capture_logs

from butlers.config.settings import Settings
from butlers.domain.caller import Caller, CallerKind
from butlers.domain.errors import NotFound
from butlers.domain.session import Outcome, SessionRequest, SessionResult, Usage
from butlers.domain.trace import TraceContext, in_trace
from butlers.wire import telemetry
from butlers.wire.telemetry import collecting, session_span, span, tool_span
from support.collector import Collector
from support.fleet import wait_for

OWNER = Caller(CallerKind.OWNER, "owner")


def settings(endpoint: str) -> Settings:
    return Settings(Path("/nowhere"), otlp_endpoint=endpoint)


def test_spans_arrive_with_our_ids_and_nested() -> None:
    with Collector() as collector:
        with (
            collecting(settings(collector.endpoint + "/")),
            span("outer", butler="health") as outer,
            tool_span("say", butler="health", caller=OWNER, arguments={"a": 1}) as inner,
        ):
            inner.result({"b": 2})
        assert not telemetry.is_on()
        seen = {found.name: found for found in collector.spans()}
    assert set(seen) == {"outer", "butler.tool.say"}
    assert seen["outer"].trace_id == outer.context.trace_id
    assert seen["outer"].span_id == outer.context.span_id
    assert seen["outer"].parent_id == ""
    assert seen["butler.tool.say"].trace_id == outer.context.trace_id
    assert seen["butler.tool.say"].parent_id == outer.context.span_id
    assert seen["butler.tool.say"].span_id == inner.context.span_id
    assert seen["butler.tool.say"].json("butlers.tool.result") == {"b": 2}
    assert (
        seen["outer"].started_ns
        <= seen["butler.tool.say"].started_ns
        <= seen["butler.tool.say"].ended_ns
        <= seen["outer"].ended_ns
    )
    assert {(found.service, found.scope) for found in seen.values()} == {("butlers", "butlers")}


def test_a_trace_from_elsewhere_goes_on() -> None:
    above = TraceContext.new().child()
    with Collector() as collector:
        with collecting(settings(collector.endpoint)), in_trace(above), span("here"):
            pass
        (seen,) = collector.spans()
    assert (seen.trace_id, seen.parent_id) == (above.trace_id, above.span_id)


def test_a_failure_arrives_as_one() -> None:
    with Collector() as collector:
        with (
            collecting(settings(collector.endpoint)),
            pytest.raises(NotFound),
            span("failing"),
        ):
            raise NotFound("there is no such shelf")
        (seen,) = collector.spans()
    assert seen.failed
    assert seen.failure == "there is no such shelf"
    assert seen.attributes["error.type"] == "NotFound"


def test_invalid_unicode_does_not_fail_the_batch() -> None:
    with Collector() as collector:
        with collecting(settings(collector.endpoint)):
            with span("\ud800", {"note": "\udfff\x00"}) as bad:
                bad.fail("\ud800")
            with span("good"):
                pass
        assert [seen.name for seen in collector.spans()] == ["\\ud800", "good"]


def test_metrics_arrive() -> None:
    session = SessionRequest(uuid4(), "hello", "schedule:morning")
    result = SessionResult(Outcome.OK, "", usage=Usage(7, 5))
    with Collector() as collector:
        with (
            collecting(settings(collector.endpoint)),
            structlog.contextvars.bound_contextvars(butler="health"),
        ):
            telemetry.measure_queue("routes", {"ready": 4})
            telemetry.count_lease_expiries("routes", 2)
            telemetry.count_lease_expiries("routes", 1)
            with session_span(session, butler="health", runtime="codex") as opened:
                opened.ended(result, 1.5, cost_usd=0.25)
        assert collector.paths == {"/v1/traces", "/v1/metrics"}
        depth = {
            point.attributes["state"]: point.value
            for point in collector.points("butlers.queue.depth")
        }
        (expiries,) = collector.points("butlers.queue.lease_expiries")
        (duration,) = collector.points("butlers.session.duration")
        (cost,) = collector.points("butlers.session.cost")
        tokens = {
            point.attributes["type"]: point.value
            for point in collector.points("butlers.session.tokens")
        }
    assert depth == {"ready": 4, "leased": 0, "dead": 0}
    assert (expiries.value, expiries.attributes) == (3, {"queue": "routes", "butler": "health"})
    assert (duration.value, duration.count) == (1.5, 1)
    assert duration.attributes["trigger"] == "schedule"
    assert (cost.value, cost.attributes["runtime"]) == (0.25, "codex")
    assert tokens == {"input": 7, "output": 5}


# -- a collector that does not work -----------------------------------------------------------------


def work(count: int = 5_000) -> int:
    done = 0
    for _ in range(count):
        with span("work"):
            done += 1
    return done


def test_missing_collector_is_tolerated() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{free.getsockname()[1]}"
    with capture_logs() as lines, collecting(settings(endpoint), flush_s=0.5):
        assert work() == 5_000
    said = [line["event"] for line in lines if line["log_level"] == "warning"]
    assert len(said) <= 2  # that it is away, that the rest is lost; not once per attempt


@pytest.mark.parametrize("endpoint", ["nonsense", "http://", "ftp://127.0.0.1", "http://[::bad"])
def test_invalid_endpoint_is_tolerated(endpoint: str) -> None:
    with collecting(settings(endpoint), flush_s=0.5):
        assert work(10) == 10


@pytest.mark.parametrize("status", [400, 404, 500, 503])
def test_refusing_collector_is_tolerated(status: int) -> None:
    with Collector() as collector:
        collector.status = status
        with collecting(settings(collector.endpoint), flush_s=0.5):
            assert work() == 5_000


def test_silent_collector_is_tolerated() -> None:
    """The block ends although the collector still holds the first request."""
    with Collector() as collector:
        collector.held.clear()
        with collecting(settings(collector.endpoint), flush_s=0.2):
            assert work() == 5_000
            assert collector.asked.wait(60)
            assert work() == 5_000
        assert not collector.held.is_set()
        assert collector.spans() == []


def test_loss_and_return_of_the_collector_are_logged() -> None:
    with Collector() as collector, capture_logs() as lines:
        collector.status = 400
        with collecting(settings(collector.endpoint)):
            work(10)
            wait_for("the loss to be told", lambda: away(lines, collector) or None)
            collector.status = 200

            def told_while_there_is_something_to_send() -> bool:
                work(1)
                return back(lines, collector) == away(lines, collector)

            wait_for("the return to be told", told_while_there_is_something_to_send)
        assert collector.spans()
    # An export that was under way when the collector came back may be refused once more.
    assert 1 <= away(lines, collector) <= 2


def back(lines: Sequence[Mapping[str, Any]], collector: Collector) -> int:
    return _told("the collector is back", lines, collector)


def away(lines: Sequence[Mapping[str, Any]], collector: Collector) -> int:
    return _told("the collector does not accept data; telemetry is lost", lines, collector)


def _told(what: str, lines: Sequence[Mapping[str, Any]], collector: Collector) -> int:
    """Of this collector: a thread that an earlier test left may still speak of another."""
    return sum(
        line["event"] == what and line["endpoint"] == collector.endpoint for line in list(lines)
    )
