"""Trace ids: parsed strictly, and malformed headers never fail."""

from __future__ import annotations

import asyncio
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from butlers.domain.trace import (
    TraceContext,
    current_trace,
    in_trace,
    traceparent_environment,
    traceparent_headers,
)

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
GOOD = f"00-{TRACE}-{SPAN}-01"


def test_a_good_header_is_taken() -> None:
    assert TraceContext.parse(GOOD) == TraceContext(TRACE, SPAN, sampled=True)
    assert TraceContext.parse(GOOD).traceparent == GOOD
    assert TraceContext.parse(f"00-{TRACE}-{SPAN}-00").sampled is False
    assert TraceContext.parse(f"00-{TRACE}-{SPAN}-00").traceparent.endswith("-00")
    assert TraceContext.parse(f" {GOOD}\t").trace_id == TRACE


def test_flags_and_fields_of_a_later_version_are_read_as_far_as_we_know_them() -> None:
    assert TraceContext.parse(f"01-{TRACE}-{SPAN}-03-more-to-come").traceparent == GOOD
    assert TraceContext.parse(f"cc-{TRACE}-{SPAN}-02").sampled is False


@pytest.mark.parametrize(
    "bad",
    [
        None,
        "",
        "00",
        GOOD.upper(),
        GOOD[:-1],
        f"{GOOD}-",
        f"{GOOD}-00",
        f"ff-{TRACE}-{SPAN}-01",
        f"01-{TRACE}-{SPAN}-01.x",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE[:-1]}g-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-0１",
        f"{GOOD}\n",
        f"{GOOD},{GOOD}",
    ],
)
def test_a_malformed_header_is_a_new_trace(bad: str | None) -> None:
    first, second = TraceContext.parse(bad), TraceContext.parse(bad)
    assert re.fullmatch("[0-9a-f]{32}", first.trace_id)
    assert TRACE not in (first.trace_id, second.trace_id)
    assert first.trace_id != second.trace_id


@given(st.text())
def test_no_header_is_an_exception(text: str) -> None:
    trace = TraceContext.parse(text)
    assert TraceContext.parse(trace.child().traceparent).trace_id == trace.trace_id


@given(st.text())
def test_a_stored_id_names_the_same_trace_each_time(text: str) -> None:
    trace = TraceContext.of_trace(text)
    assert trace == TraceContext.of_trace(text)
    assert TraceContext.parse(trace.traceparent).trace_id == trace.trace_id


def test_a_child_is_another_span_of_the_same_trace() -> None:
    parent = TraceContext.parse(f"00-{TRACE}-{SPAN}-00")
    child = parent.child()
    assert (child.trace_id, child.sampled) == (TRACE, False)
    assert child.span_id != SPAN
    assert re.fullmatch("[0-9a-f]{16}", child.span_id)


def test_without_a_trace_no_headers_are_passed() -> None:
    assert current_trace() is None
    assert traceparent_headers() == {}
    assert traceparent_environment() == {}


def test_trace_is_passed_to_calls_and_child_processes() -> None:
    with in_trace(TraceContext(TRACE, SPAN)):
        assert traceparent_headers() == {"traceparent": GOOD}
        assert traceparent_environment() == {"TRACEPARENT": GOOD}
        with in_trace(None):
            assert traceparent_headers() == {}
    assert current_trace() is None


async def test_tasks_side_by_side_do_not_see_each_other() -> None:
    meeting = asyncio.Barrier(20)

    async def work() -> tuple[TraceContext | None, TraceContext | None]:
        mine = TraceContext.new().child()
        with in_trace(mine):
            await meeting.wait()
            seen = current_trace()
            inner = await asyncio.create_task(_read())
            assert seen == inner == mine
        await meeting.wait()
        return seen, current_trace()

    found = await asyncio.gather(*(work() for _ in range(20)))
    assert len({seen for seen, _ in found}) == 20
    assert {after for _, after in found} == {None}
    assert current_trace() is None


async def _read() -> TraceContext | None:
    await asyncio.sleep(0)
    return current_trace()
