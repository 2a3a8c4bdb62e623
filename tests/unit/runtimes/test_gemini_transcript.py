"""The events of the Gemini CLI, recorded from the real one, and malformed ones."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from butlers.domain.session import Exit, Outcome, SessionResult, ToolCall, Usage
from butlers.process.runner import EndReason, ProcessEnd
from butlers.runtimes.gemini.preload import DELIVERED
from butlers.runtimes.gemini.transcript import PROMPT_NOT_SENT, GeminiTranscript
from support.recorded import assert_sound, cases, recording, strange_events

SET = ToolCall("state_set", {"key": "k", "value": "v"}, True, {"ok": True, "key": "k"})


def read(case: str, ended: ProcessEnd | None = None) -> SessionResult:
    return recording("gemini", case).read_by(GeminiTranscript("health"), ended)


def test_transcript_has_the_call_and_the_answer() -> None:
    recorded = recording("gemini", "tool-call")
    assert read("tool-call") == SessionResult(
        Outcome.OK,
        "It is written.",
        (SET,),
        Usage(2000, 50, 400),
        model="gemini-2.5-flash",
        exit=recorded.ended.exit,
    )


def test_calls_are_reported_in_order() -> None:
    result = read("two-turns")
    assert [call.tool for call in result.tool_calls] == ["state_set", "state_get"]
    assert (result.text, result.usage) == ("All is done.", Usage(3000, 75, 600))
    assert result.tool_calls[1].result == "value of k"


def test_result_is_the_last_event() -> None:
    transcript = GeminiTranscript("health")
    seen = [transcript.read(event) for event in recording("gemini", "tool-call").events]
    assert seen == [False] * (len(seen) - 1) + [True]


@pytest.mark.parametrize(
    ("case", "outcome", "error"),
    [
        ("server-down", Outcome.MCP_UNAVAILABLE, "Gemini CLI did not reach health"),
        ("no-key", Outcome.NO_CREDENTIAL, "you must specify the GEMINI_API_KEY"),
        ("bad-key", Outcome.NO_CREDENTIAL, "API key not valid"),
        ("sealed-refused", Outcome.DENIED, "tried was refused: run_shell_command: touch made"),
        ("api-400", Outcome.REJECTED, "The model is not to be had."),
        ("api-401", Outcome.NO_CREDENTIAL, "The model is not to be had."),
        ("api-403", Outcome.NO_CREDENTIAL, "The model is not to be had."),
        ("api-429", Outcome.RATE_LIMITED, "Please wait and try again later"),
        ("api-500", Outcome.MODEL_UNAVAILABLE, "The model is not to be had."),
        ("api-503", Outcome.RATE_LIMITED, "The model is not to be had."),
        ("no-money", Outcome.RATE_LIMITED, "You exceeded your current quota"),
        ("bad-argument", Outcome.CRASHED, "Gemini CLI exited with 1 and no result"),
        ("killed", Outcome.CRASHED, "Gemini CLI exited with -9 and no result"),
    ],
)
def test_each_failure_has_its_outcome_and_error(case: str, outcome: Outcome, error: str) -> None:
    result = read(case)
    assert result.outcome is outcome
    assert error in (result.error or "")
    assert "\n" not in (result.error or "")


@pytest.mark.parametrize(
    "case",
    ["answer", "full", "refused-then-done", "tool-raises", "wrong-token"],
)
def test_success_has_no_error(case: str) -> None:
    """No event reports a refused token: only the butler knows that the session never connected."""
    result = read(case)
    assert (result.outcome, result.error) == (Outcome.OK, None)


@pytest.mark.parametrize("case", [case for case in cases("gemini") if case.startswith("api-")])
def test_error_text_is_not_the_answer(case: str) -> None:
    assert read(case).text == ""


def test_tool_that_raised_is_a_failed_call() -> None:
    (call,) = read("tool-raises").tool_calls
    assert (call.tool, call.ok) == ("boom", False)
    assert "it broke" in call.result


def test_unknown_butler_tool_is_a_failed_call() -> None:
    result = read("unknown-tool")
    assert [(call.tool, call.ok) for call in result.tool_calls] == [("nothing", False)]
    assert result.denials == ()


def test_denials_are_reported_after_a_success() -> None:
    result = read("refused-then-done")
    assert result.denials == ("run_shell_command: touch made",)
    refused, done = result.tool_calls
    assert (refused.tool, refused.arguments["command"]) == ("run_shell_command", "touch made")
    assert (refused.ok, refused.of_cli, refused.denied) == (False, True, True)
    assert done == SET


def test_tools_of_the_cli_are_reported_as_its_own() -> None:
    own, done = read("full").tool_calls
    assert (own.tool, own.ok, own.of_cli, own.denied) == ("run_shell_command", True, True, False)
    assert done == SET


def test_answer_is_joined_from_parts() -> None:
    transcript = GeminiTranscript("health")
    use = {"type": "tool_use", "tool_name": "mcp_health_x", "tool_id": "1", "parameters": {}}
    said = [{"type": "message", "role": "assistant", "content": text} for text in ("a", "b", "c")]
    for event in (said[0], use, *said[1:], {"type": "result", "status": "success", "stats": {}}):
        transcript.read(event)
    assert transcript.result(ProcessEnd(EndReason.EXITED, Exit(0, 1.0))).text == "bc"


def test_thinking_counts_as_output() -> None:
    transcript = GeminiTranscript("health")
    stats = {"total_tokens": 1300, "input_tokens": 1000, "output_tokens": 100, "cached": 0}
    transcript.read({"type": "result", "status": "success", "stats": stats})
    assert transcript.result(ProcessEnd(EndReason.EXITED, Exit(0, 1.0))).usage == Usage(
        1000, 300, 0
    )


@pytest.mark.parametrize(
    "why", [EndReason.NEVER_BEGAN, EndReason.FELL_SILENT, EndReason.TOOK_TOO_LONG]
)
def test_late_process_has_timed_out(why: EndReason) -> None:
    """Its exit code is 0 then."""
    result = read("killed", ProcessEnd(why, Exit(0, 9.0)))
    assert result.outcome is Outcome.TIMED_OUT
    assert result.tool_calls == (SET,)
    assert result.usage == Usage()


def test_exit_without_a_result_is_a_crash() -> None:
    assert read("killed", ProcessEnd(EndReason.EXITED, Exit(0, 9.0))).outcome is Outcome.CRASHED


def test_late_exit_after_the_result_is_a_success() -> None:
    """Its result had come by then."""
    assert read("answer", ProcessEnd(EndReason.EXITED, Exit(-15, 9.0))).outcome is Outcome.OK


def test_late_server_counts_as_reached() -> None:
    trouble = Exit(0, 1.0, "MCP issues detected. Run /mcp list for status.")
    assert read("tool-call", ProcessEnd(EndReason.EXITED, trouble)).outcome is Outcome.OK
    assert read("answer", ProcessEnd(EndReason.EXITED, trouble)).outcome is Outcome.MCP_UNAVAILABLE


def test_cli_that_cannot_be_started_is_a_crash() -> None:
    missing = ProcessEnd(EndReason.NOT_FOUND, Exit(None, 0.0, "gemini: no such file"))
    result = GeminiTranscript("health").result(missing)
    assert result.outcome is Outcome.CRASHED
    assert "gemini: no such file" in (result.error or "")


@given(
    st.lists(strange_events("gemini"), max_size=8),
    st.sampled_from(list(EndReason)),
    st.sampled_from(cases("gemini")),
)
def test_no_event_makes_it_raise(events: list[dict[str, Any]], why: EndReason, case: str) -> None:
    transcript = GeminiTranscript("health")
    for event in events:
        transcript.read(event)  # also what comes after the last
    stderr = recording("gemini", case).ended.exit.stderr
    assert_sound(transcript.result(ProcessEnd(why, Exit(None, 0.0, stderr))))


@given(strange_events("gemini"))
def test_only_a_result_is_a_success(event: dict[str, Any]) -> None:
    if event.get("type") != "result":
        transcript = GeminiTranscript("health")
        transcript.read(event)
        assert (
            transcript.result(ProcessEnd(EndReason.EXITED, Exit(0, 0.0))).outcome is not Outcome.OK
        )


def test_loop_that_the_cli_ended_is_no_success() -> None:
    recorded = recording("gemini", "tool-call")
    transcript = GeminiTranscript("health")
    *events, end = recorded.events
    loop = {"type": "error", "severity": "warning", "message": "Loop detected, stopping execution"}
    for event in (*events, loop, end):
        transcript.read(event)
    result = transcript.result(recorded.ended)
    assert result.outcome is Outcome.LIMIT_REACHED
    assert "Loop detected" in (result.error or "")


def test_session_whose_system_prompt_was_not_delivered_is_no_success() -> None:
    recorded = recording("gemini", "tool-call")
    transcript = GeminiTranscript("health")
    for event in recorded.events:
        if event["type"] != DELIVERED:
            transcript.read(event)
    result = transcript.result(recorded.ended)
    assert (result.outcome, result.error) == (Outcome.CRASHED, PROMPT_NOT_SENT)
