"""The events of Claude Code, recorded from the real one, and malformed ones."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from butlers.domain.session import Exit, Outcome, SessionResult, ToolCall, Usage
from butlers.process.runner import EndReason, ProcessEnd
from butlers.runtimes.claude_code.transcript import ClaudeTranscript

RECORDED = Path(__file__).parent / "transcripts" / "claude-code"
CASES = sorted(file.stem for file in RECORDED.glob("*.jsonl"))
LEFT = ProcessEnd(EndReason.EXITED, Exit(0, 1.0))
MILK = ToolCall("write", {"text": "milk"}, True, {"number": 1, "text": "milk"})


def events(case: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (RECORDED / f"{case}.jsonl").read_text().splitlines()]


def read(events: list[Any], ended: ProcessEnd = LEFT) -> SessionResult:
    transcript = ClaudeTranscript("tester")
    for event in events:
        if transcript.read(event):
            break
    return transcript.result(ended)


def test_transcript_has_the_call_and_the_answer() -> None:
    result = read(events("answer"))
    assert result == SessionResult(
        Outcome.OK,
        "It is written.",
        (MILK,),
        Usage(2400, 50, 400, Decimal("0.00687")),
        model="claude-sonnet-4-5",
        exit=LEFT.exit,
    )


def test_several_calls_at_once() -> None:
    result = read(events("two-turns"))
    assert result.tool_calls == (
        MILK,
        ToolCall("say", {"text": "a"}, True, {"text": "a"}),
        ToolCall("write", {"text": "eggs"}, True, {"number": 1, "text": "eggs"}),
    )
    assert (result.outcome, result.text) == (Outcome.OK, "Both are written.")


def test_result_is_the_last_event() -> None:
    transcript = ClaudeTranscript("tester")
    assert [transcript.read(event) for event in events("answer")] == [False] * 4 + [True]


@pytest.mark.parametrize(
    ("case", "outcome", "error"),
    [
        ("server-down", Outcome.MCP_UNAVAILABLE, "did not reach tester: its server is failed"),
        ("sealed-refused", Outcome.DENIED, "Bash: touch x"),
        (
            "workspace-refused",
            Outcome.DENIED,
            "Bash: touch x; Write: /srv/roster/x; Bash: ls skills/; id",
        ),
        ("api-400", Outcome.REJECTED, "API Error: 400 The fake model fails."),
        ("api-401", Outcome.NO_CREDENTIAL, "Failed to authenticate. API Error: 401"),
        ("api-403", Outcome.NO_CREDENTIAL, "Failed to authenticate. API Error: 403"),
        ("api-404", Outcome.REJECTED, "There's an issue with the selected model"),
        ("api-429", Outcome.RATE_LIMITED, "Request rejected (429)"),
        ("api-500", Outcome.MODEL_UNAVAILABLE, "API Error: 500"),
        ("api-529", Outcome.RATE_LIMITED, "API Error: 529"),
        ("no-key", Outcome.NO_CREDENTIAL, "Not logged in"),
        ("max-budget", Outcome.OVER_BUDGET, "Reached maximum budget ($0.001)"),
        ("max-turns", Outcome.OVER_BUDGET, "Reached maximum number of turns (1)"),
        ("interrupted", Outcome.CRASHED, "ede_diagnostic"),
        ("terminated", Outcome.CRASHED, "exited with 143 and no result: the last words"),
        ("killed", Outcome.CRASHED, "exited with 143 and no result"),
    ],
)
def test_each_failure_has_its_outcome_and_error(case: str, outcome: Outcome, error: str) -> None:
    result = read(
        events(case), ProcessEnd(EndReason.EXITED, Exit(143, 1.0, "first\nthe last words\n"))
    )
    assert result.outcome is outcome
    assert error in (result.error or "")


@pytest.mark.parametrize(
    "case", ["answer", "api-529-once", "big-result", "tool-raises", "refused-then-done"]
)
def test_success_has_no_error(case: str) -> None:
    result = read(events(case))
    assert (result.outcome, result.error) == (Outcome.OK, None)


@pytest.mark.parametrize(
    ("status", "said", "outcome"),
    [
        (400, "Credit balance is too low", Outcome.NO_CREDIT),
        (429, "insufficient credits", Outcome.NO_CREDIT),
        (503, "API Error: 503 no healthy upstream", Outcome.RATE_LIMITED),
        (None, "Claude AI usage limit reached", Outcome.RATE_LIMITED),
        (400, "API Error: 400 what a rate limit is, it cannot say", Outcome.REJECTED),
        ([503], "API Error", Outcome.CRASHED),
    ],
)
def test_vendor_refusals_map_to_the_same_outcomes(status: Any, said: str, outcome: Outcome) -> None:
    *_, end = events("api-500")
    result = read([{**end, "api_error_status": status, "result": said}])
    assert (result.outcome, result.error) == (outcome, f"Claude Code failed: {said}")


@pytest.mark.parametrize("case", [case for case in CASES if case.startswith("api-4")])
def test_error_text_is_not_the_answer(case: str) -> None:
    assert read(events(case)).text == ""


def test_tool_that_raised_is_a_failed_call() -> None:
    (call,) = read(events("tool-raises")).tool_calls
    assert (call.tool, call.ok) == ("fail", False)
    assert "there is no such shelf" in call.result


def test_denials_are_reported_after_a_success() -> None:
    result = read(events("refused-then-done"))
    assert result.denials == ("Bash: touch x",)
    assert [call.ok for call in result.tool_calls] == [False, True]


def test_denials_are_reported_without_a_result() -> None:
    result = read(
        events("workspace-refused")[:4], ProcessEnd(EndReason.FELL_SILENT, Exit(-15, 9.0))
    )
    assert result.denials == ("Bash: touch x",)
    assert result.outcome is Outcome.TIMED_OUT


def test_cost_of_unknown_price_is_not_reported() -> None:
    assert read(events("unknown-model")).usage == Usage(1200, 25, 200, None)


def test_session_ended_by_a_limit_reports_its_usage() -> None:
    """Its plain counts are all zero then."""
    assert read(events("max-budget")).usage == Usage(1200, 25, 200, Decimal("0.003435"))


def test_broken_session_reports_usage_of_its_turns() -> None:
    usage = read(events("killed")).usage
    assert (usage.input_tokens, usage.cached_tokens) == (1200, 200)
    assert usage.cost_usd is None


def test_session_without_a_turn_has_unknown_usage() -> None:
    assert read(events("killed")[:1]).usage == Usage()


def test_stopped_session_is_cancelled_with_its_exit() -> None:
    result = read(events("killed"), ProcessEnd(EndReason.STOPPED, Exit(-9, 2.5, "", "stopped")))
    assert (result.outcome, result.error) == (Outcome.CANCELLED, "The session was stopped.")
    assert result.tool_calls == (MILK,)
    assert result.exit == Exit(-9, 2.5, "", "stopped")


@pytest.mark.parametrize(
    "why", [EndReason.NEVER_BEGAN, EndReason.FELL_SILENT, EndReason.TOOK_TOO_LONG]
)
def test_late_process_has_timed_out(why: EndReason) -> None:
    result = read(events("killed"), ProcessEnd(why, Exit(-15, 9.0)))
    assert result.outcome is Outcome.TIMED_OUT
    assert result.tool_calls == (MILK,)


def test_late_exit_after_the_result_is_a_success() -> None:
    """Its result had come by then."""
    assert (
        read(events("answer"), ProcessEnd(EndReason.EXITED, Exit(-15, 9.0))).outcome is Outcome.OK
    )


def test_cli_that_cannot_be_started_is_a_crash() -> None:
    result = read([], ProcessEnd(EndReason.NOT_FOUND, Exit(None, 0.0, "claude: no such file")))
    assert result.outcome is Outcome.CRASHED
    assert "claude: no such file" in (result.error or "")


def test_another_server_that_is_connected_is_not_its_butler() -> None:
    begin, *rest = events("server-down")
    begin["mcp_servers"] = [{"name": "foreign", "status": "connected"}]
    assert read([begin, *rest]).outcome is Outcome.MCP_UNAVAILABLE


def test_server_connected_after_the_start_counts_as_reached() -> None:
    begin, *rest = events("answer")
    begin["mcp_servers"][0]["status"] = "pending"
    assert read([begin, *rest]).outcome is Outcome.OK
    assert read([begin, rest[-1]]).outcome is Outcome.MCP_UNAVAILABLE


# -- malformed events ---------------------------------------------------------------------------------

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["init", "result", "tool_use", "tool_result", "success", "tester", "text"])
)
NAMES = st.sampled_from(
    [
        "type",
        "subtype",
        "message",
        "content",
        "id",
        "name",
        "input",
        "text",
        "tool_use_id",
        "is_error",
        "usage",
        "modelUsage",
        "mcp_servers",
        "status",
        "permission_denials",
        "tool_result_meta",
        "model",
        "tool_use_result",
        "structuredContent",
        "api_error_status",
        "errors",
        "result",
        "error",
    ]
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(NAMES | st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=12,
)
KINDS = st.sampled_from(["system", "assistant", "user", "result"])
STRANGE = st.dictionaries(NAMES, VALUES, max_size=6)
TYPED = st.builds(lambda kind, event: {**event, "type": kind}, KINDS, STRANGE)
WHOLE = [event for case in CASES if case != "big-result" for event in events(case)]


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to every value in an event."""
    inner = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    return [path, *(place for key, one in inner for place in places(one, (*path, key)))]


@st.composite
def mutated(draw: st.DrawFn) -> dict[str, Any]:
    """A recorded event with one value replaced by anything."""
    event: dict[str, Any] = json.loads(json.dumps(draw(st.sampled_from(WHOLE))))
    *way, last = draw(st.sampled_from([place for place in places(event) if place]))
    holder: Any = event
    for key in way:
        holder = holder[key]
    holder[last] = draw(VALUES)
    return event


@given(st.lists(STRANGE | TYPED | mutated(), max_size=8), st.sampled_from(list(EndReason)))
def test_no_event_makes_it_raise(given_events: list[dict[str, Any]], why: EndReason) -> None:
    transcript = ClaudeTranscript("tester")
    for event in given_events:
        transcript.read(event)  # also what comes after the last
    result = transcript.result(ProcessEnd(why, Exit(None, 0.0)))
    assert isinstance(result.text, str)
    assert result.ok == (result.error is None)
    assert all(isinstance(denial, str) for denial in result.denials)
    assert all(
        isinstance(call.tool, str) and isinstance(call.ok, bool) for call in result.tool_calls
    )
    for number in (
        result.usage.input_tokens,
        result.usage.output_tokens,
        result.usage.cached_tokens,
    ):
        assert number is None or number >= 0
    assert result.usage.cost_usd is None or result.usage.cost_usd.is_finite()


@given(mutated())
def test_no_event_alone_is_a_success(event: dict[str, Any]) -> None:
    """Without a start that connected, nothing that comes later makes it one."""
    if event.get("type") != "system":
        assert read([event]).outcome is not Outcome.OK
