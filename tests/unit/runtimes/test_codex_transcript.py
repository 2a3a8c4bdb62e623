"""The events of Codex, recorded from the real one, and malformed ones."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from butlers.domain.session import Exit, Outcome, SessionResult, ToolCall, Usage
from butlers.process.runner import EndReason, ProcessEnd
from butlers.runtimes.codex.transcript import CodexTranscript
from support.recorded import assert_sound, cases, recording, strange_events

SET = ToolCall("state_set", {"key": "k", "value": "v"}, True, {"ok": True, "key": "k"})


def read(case: str, ended: ProcessEnd | None = None) -> SessionResult:
    return recording("codex", case).read_by(CodexTranscript("health"), ended)


def test_transcript_has_the_call_and_the_answer() -> None:
    recorded = recording("codex", "tool-call")
    assert read("tool-call") == SessionResult(
        Outcome.OK, "It is written.", (SET,), Usage(2000, 50, 400), exit=recorded.ended.exit
    )


def test_calls_are_reported_in_order() -> None:
    result = read("two-turns")
    assert [call.tool for call in result.tool_calls] == ["state_set", "state_get"]
    assert (result.text, result.usage) == ("All is done.", Usage(3000, 75, 600))


def test_result_is_the_last_event() -> None:
    transcript = CodexTranscript("health")
    seen = [transcript.read(event) for event in recording("codex", "tool-call").events]
    assert seen == [False] * (len(seen) - 1) + [True]


@pytest.mark.parametrize(
    ("case", "outcome", "error"),
    [
        ("server-down", Outcome.MCP_UNAVAILABLE, "Codex did not reach health: handshaking"),
        ("wrong-token", Outcome.MCP_UNAVAILABLE, "Codex did not reach health"),
        ("no-key", Outcome.NO_CREDENTIAL, "Missing environment variable: `OPENAI_API_KEY`"),
        ("sealed-refused", Outcome.DENIED, "tried was refused: exec_command"),
        ("api-400", Outcome.REJECTED, "The model is not to be had."),
        ("api-401", Outcome.NO_CREDENTIAL, "unexpected status 401 Unauthorized"),
        ("api-403", Outcome.NO_CREDENTIAL, "unexpected status 403 Forbidden"),
        ("api-429", Outcome.RATE_LIMITED, "last status: 429"),
        ("api-500", Outcome.MODEL_UNAVAILABLE, "high demand"),
        ("api-503", Outcome.RATE_LIMITED, "unexpected status 503"),
        ("no-money", Outcome.NO_CREDIT, "Check your plan and billing details"),
        ("bad-argument", Outcome.CRASHED, "Codex exited with 2 and no result"),
        ("killed", Outcome.CRASHED, "Codex exited with -9 and no result"),
    ],
)
def test_each_failure_has_its_outcome_and_error(case: str, outcome: Outcome, error: str) -> None:
    result = read(case)
    assert result.outcome is outcome
    assert error in (result.error or "")
    assert "\n" not in (result.error or "")


@pytest.mark.parametrize(
    "case",
    ["answer", "full", "refused-then-done", "tool-raises", "unknown-model", "unknown-tool"],
)
def test_success_has_no_error(case: str) -> None:
    result = read(case)
    assert (result.outcome, result.error) == (Outcome.OK, None)


def test_warning_about_an_unknown_model_is_not_a_failure() -> None:
    kinds = [
        event.get("item", {}).get("type") for event in recording("codex", "unknown-model").events
    ]
    assert "error" in kinds
    assert read("unknown-model").tool_calls == (SET,)


@pytest.mark.parametrize("case", [case for case in cases("codex") if case.startswith("api-")])
def test_error_text_is_not_the_answer(case: str) -> None:
    assert read(case).text == ""


def test_tool_that_raised_is_a_failed_call() -> None:
    (call,) = read("tool-raises").tool_calls
    assert (call.tool, call.ok) == ("boom", False)
    assert call.result == "Error calling tool 'boom': it broke"


def test_denials_are_reported_after_a_success() -> None:
    result = read("refused-then-done")
    refused = ToolCall("exec_command", {}, ok=False, of_cli=True, denied=True)
    assert (result.denials, result.tool_calls) == (("exec_command",), (SET, refused))


def test_tools_of_the_cli_are_reported_as_its_own() -> None:
    touch = {"command": "/bin/bash -lc 'touch made'"}
    own = ToolCall("command_execution", touch, True, "", of_cli=True)
    assert read("full").tool_calls == (own, SET)


@pytest.mark.parametrize(
    "why", [EndReason.NEVER_BEGAN, EndReason.FELL_SILENT, EndReason.TOOK_TOO_LONG]
)
def test_late_process_has_timed_out(why: EndReason) -> None:
    result = read("killed", ProcessEnd(why, Exit(-15, 9.0)))
    assert result.outcome is Outcome.TIMED_OUT
    assert result.tool_calls == (SET,)
    assert result.usage == Usage()


def test_unfinished_call_is_reported() -> None:
    recorded = recording("codex", "killed")
    transcript = CodexTranscript("health")
    for event in recorded.events[:-1]:
        transcript.read(event)
    (call,) = transcript.result(ProcessEnd(EndReason.FELL_SILENT, Exit(-15, 9.0))).tool_calls
    assert (call.tool, call.ok, call.result) == ("state_set", False, None)


def test_late_exit_after_the_result_is_a_success() -> None:
    """Its result had come by then."""
    assert read("answer", ProcessEnd(EndReason.EXITED, Exit(-15, 9.0))).outcome is Outcome.OK


def test_cli_that_cannot_be_started_is_a_crash() -> None:
    missing = ProcessEnd(EndReason.NOT_FOUND, Exit(None, 0.0, "codex: no such file"))
    result = CodexTranscript("health").result(missing)
    assert result.outcome is Outcome.CRASHED
    assert "codex: no such file" in (result.error or "")


def test_call_of_another_server_does_not_count_as_the_butlers() -> None:
    assert recording("codex", "tool-call").read_by(CodexTranscript("general")).tool_calls == ()


@given(
    st.lists(strange_events("codex"), max_size=8),
    st.sampled_from(list(EndReason)),
    st.sampled_from(cases("codex")),
)
def test_no_event_makes_it_raise(events: list[dict[str, Any]], why: EndReason, case: str) -> None:
    transcript = CodexTranscript("health")
    for event in events:
        transcript.read(event)  # also what comes after the last
    stderr = recording("codex", case).ended.exit.stderr
    assert_sound(transcript.result(ProcessEnd(why, Exit(None, 0.0, stderr))))


@given(strange_events("codex"))
def test_only_a_completed_turn_is_a_success(event: dict[str, Any]) -> None:
    if event.get("type") != "turn.completed":
        transcript = CodexTranscript("health")
        transcript.read(event)
        assert (
            transcript.result(ProcessEnd(EndReason.EXITED, Exit(0, 0.0))).outcome is not Outcome.OK
        )
