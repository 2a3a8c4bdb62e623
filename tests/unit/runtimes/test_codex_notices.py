"""Notices of Codex's app server, recorded from the real one, and malformed ones."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from butlers.domain.session import Exit, Outcome, SessionResult, ToolCall, Usage
from butlers.process.runner import EndReason, ProcessEnd
from butlers.runtimes.codex.transcript import CodexTranscript, Notices
from support.recorded import assert_sound

LEFT = ProcessEnd(EndReason.EXITED, Exit(0, 1.0))
CALL = {
    "type": "mcpToolCall",
    "id": "call_1",
    "server": "health",
    "tool": "state_set",
    "status": "inProgress",
    "arguments": {"key": "k"},
    "result": None,
    "error": None,
}
DONE = {
    **CALL,
    "status": "completed",
    "result": {"content": [{"type": "text", "text": "{}"}], "structuredContent": {"ok": True}},
}
TOTAL = {"inputTokens": 2000, "cachedInputTokens": 400, "outputTokens": 50, "totalTokens": 2050}


def notice(method: str, **params: Any) -> dict[str, Any]:
    return {"method": method, "params": {"threadId": "t", **params}}


def item(kind: str, **fields: Any) -> dict[str, Any]:
    return notice(f"item/{kind}", item=fields)


STARTED, COMPLETED = item("started", **CALL), item("completed", **DONE)
SAID = item("completed", type="agentMessage", id="m", text="It is written.")
USED = notice("thread/tokenUsage/updated", tokenUsage={"total": TOTAL, "last": TOTAL})
ENDED = notice("turn/completed", turn={"id": "u", "status": "completed", "error": None})
KNOWN = (STARTED, COMPLETED, SAID, USED, ENDED)


def read(*told: dict[str, Any], ended: ProcessEnd = LEFT) -> SessionResult:
    notices, transcript = Notices(), CodexTranscript("health")
    for one in told:
        event = notices.event(one)
        if event is not None:
            transcript.read(event)
    return transcript.result(ended)


def test_transcript_has_the_call_and_the_answer() -> None:
    call = ToolCall("state_set", {"key": "k"}, True, {"ok": True})
    assert read(*KNOWN) == SessionResult(
        Outcome.OK, "It is written.", (call,), Usage(2000, 50, 400), exit=LEFT.exit
    )


def test_only_the_turn_end_is_the_last_event() -> None:
    notices, transcript = Notices(), CodexTranscript("health")
    events = [notices.event(one) for one in KNOWN]
    assert [event is not None and transcript.read(event) for event in events] == [
        False,
        False,
        False,
        False,
        True,
    ]


def test_unfinished_answer_does_not_replace_the_last() -> None:
    begun = item("started", type="agentMessage", id="n", text="")
    assert read(SAID, begun, ENDED).text == "It is written."


def test_unfinished_call_is_reported() -> None:
    result = read(STARTED, ended=ProcessEnd(EndReason.FELL_SILENT, Exit(-15, 9.0)))
    assert [(call.tool, call.ok) for call in result.tool_calls] == [("state_set", False)]
    assert result.outcome is Outcome.TIMED_OUT


def test_a_command_that_was_declined_is_a_denial() -> None:
    declined = item("completed", type="commandExecution", command="rm -r /", status="declined")
    result = read(declined, ENDED)
    assert (result.outcome, result.denials) == (Outcome.DENIED, ("rm -r /",))


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        ({"message": "unexpected status 401 Unauthorized"}, Outcome.NO_CREDENTIAL),
        (
            {"message": "exceeded retry limit", "additionalDetails": "last status: 429"},
            Outcome.RATE_LIMITED,
        ),
        ({"message": "The model is not to be had."}, Outcome.CRASHED),
        (None, Outcome.CRASHED),
    ],
)
def test_failed_turn_is_a_failure(error: Any, outcome: Outcome) -> None:
    failed = notice("turn/completed", turn={"status": "failed", "error": error})
    result = read(notice("error", error=error, willRetry=False), failed)
    assert result.outcome is outcome
    assert result.error
    assert result.usage == Usage()


def test_failed_turn_keeps_the_reported_usage() -> None:
    failed = notice("turn/completed", turn={"status": "failed", "error": {"message": "429"}})
    assert read(STARTED, COMPLETED, USED, failed).usage == Usage(2000, 50, 400)


_words = st.sampled_from(
    ["agentMessage", "mcpToolCall", "completed", "failed", "declined", "health", "state_set"]
)
_names = st.sampled_from(
    sorted({"item", "turn", "error", "tokenUsage", "total", "status", "type", "message", *DONE})
)
_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | _words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_names, inner, max_size=5),
    max_leaves=15,
)
_methods = st.sampled_from([one["method"] for one in KNOWN] + ["error", "item/started"])
_strange = st.fixed_dictionaries({}, optional={"method": _methods | _values, "params": _values})
_nearly = st.builds(
    lambda method, name, value: {"method": method, "params": {name: value}},
    _methods,
    _names,
    _values,
)


@given(st.lists(_strange | _nearly | st.sampled_from(KNOWN), max_size=8))
def test_no_notice_makes_the_translation_raise(told: list[dict[str, Any]]) -> None:
    assert_sound(read(*told))
