"""Read the events of a Gemini session: ``init``, parts of messages, uses and results of tools, a ``result``.

No event tells whether the CLI reached its butler. A server that is down leaves a line on stderr. One that
refuses the token leaves nothing: only the server itself knows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from butlers.domain.session import Outcome, SessionResult, ToolCall, Usage
from butlers.process.runner import Event, ProcessEnd
from butlers.runtimes import failures
from butlers.runtimes.failures import SessionFailure
from butlers.runtimes.formats import count, mapping, text
from butlers.runtimes.gemini.preload import DELIVERED

PROGRAM = "Gemini CLI"
PROMPT_NOT_SENT = (
    f"{PROGRAM} did not send the butler's system prompt to the model unchanged, so its answer is discarded"
    " (is it the version that `butlers doctor` names?)"
)
# Warnings after which the CLI ends the session and calls it a success.
STOPPED_EARLY = ("Loop detected", "Maximum session turns exceeded")
FORBIDDEN = ("tool_not_registered", "policy_violation")  # types of a refusal
_NO_SERVER = re.compile(r"MCP issues detected")
_ANSWERED = re.compile(
    r"^  status: \d{3}$", re.MULTILINE
)  # status of the model's API, in the trace of an error
_NO_KEY = re.compile(r"^[^\n]*(?:GEMINI_API_KEY|Auth method)[^\n]*", re.MULTILINE)


class GeminiTranscript:
    def __init__(self, butler: str) -> None:
        self._butler = butler
        self._prefix = f"mcp_{butler}_"
        self._calls: dict[str, ToolCall] = {}  # in the order of their start
        self._denials: list[str] = []
        self._model: str | None = None
        self._text = ""
        self._speaking = False
        self._usage = Usage()
        self._error = ""
        self._prompt_sent = False  # the model has the butler's system prompt
        self._status: str | None = None  # "success" or "error", once it has ended

    def read(self, event: Event) -> bool:
        kind = event.get("type")
        if kind == "message" and event.get("role") == "assistant":
            self._add_text(text(event.get("content")) or "")
        elif kind == "tool_use":
            self._use(event)
        elif kind == "tool_result":
            self._read_result(event)
        elif kind == "init":
            self._model = text(event.get("model"))
        elif kind == DELIVERED:
            self._prompt_sent = True
        elif kind == "error":
            self._error = text(event.get("message")) or ""
        elif kind == "result":
            self._end(event)
        return self._status is not None

    def result(self, ended: ProcessEnd) -> SessionResult:
        result = SessionResult(
            Outcome.OK,
            self._text,
            tuple(self._calls.values()),
            self._usage,
            model=self._model,
            denials=tuple(self._denials),
            exit=ended.exit,
        )
        return failures.conclude(result, self._failure(ended))

    @property
    def _reached(self) -> bool:
        return any(call.ok and not call.of_cli for call in self._calls.values())

    def _add_text(self, piece: str) -> None:
        """Add to the answer, which is the text after the last tool."""
        self._text = self._text + piece if self._speaking else piece
        self._speaking = True

    def _use(self, event: Event) -> None:
        self._speaking = False
        key, name = str(event.get("tool_id")), text(event.get("tool_name")) or ""
        arguments = dict(mapping(event.get("parameters")))
        of_cli = not name.startswith(self._prefix)
        tool = name.removeprefix(self._prefix)
        self._calls[key] = ToolCall(tool, arguments, ok=False, of_cli=of_cli)

    def _read_result(self, event: Event) -> None:
        key, error = str(event.get("tool_id")), mapping(event.get("error"))
        if call := self._calls.get(key):
            result = text(error.get("message")) or _parsed(text(event.get("output")) or "")
            denied = call.of_cli and _forbidden(error)
            ok = event.get("status") == "success"
            self._calls[key] = replace(call, ok=ok, result=result, denied=denied)
            if denied:
                self._denials.append(_summary(call))

    def _end(self, event: Event) -> None:
        self._status = text(event.get("status")) or ""
        self._usage = _usage(mapping(event.get("stats")))
        self._error = text(mapping(event.get("error")).get("message")) or self._error

    def _failure(self, ended: ProcessEnd) -> SessionFailure | None:
        if self._status is None:
            return self._cut_short(ended)
        if _NO_SERVER.search(ended.exit.stderr) and not self._reached:
            return failures.unreached(PROGRAM, self._butler)
        if self._status == "success" and not self._prompt_sent:
            return SessionFailure(Outcome.CRASHED, PROMPT_NOT_SENT)
        if self._error.startswith(STOPPED_EARLY):
            return SessionFailure(
                Outcome.LIMIT_REACHED, f"{PROGRAM}: {failures.brief(self._error)}"
            )
        if self._status == "success":
            return None
        *_, status = ("", *_ANSWERED.findall(ended.exit.stderr))  # the last event may not name it
        return failures.of_model(PROGRAM, f"{self._error} {status}")

    def _cut_short(self, ended: ProcessEnd) -> SessionFailure:
        if found := _NO_KEY.search(ended.exit.stderr):
            return SessionFailure(Outcome.NO_CREDENTIAL, f"{PROGRAM}: {failures.brief(found[0])}")
        return failures.cut_short(PROGRAM, ended) or failures.of_exit(PROGRAM, ended)


def _summary(call: ToolCall) -> str:
    """Return the tool and its command or file."""
    target = text(call.arguments.get("command")) or text(call.arguments.get("file_path"))
    return f"{call.tool}: {target}" if target else call.tool


def _forbidden(error: Mapping[str, Any]) -> bool:
    """Return whether a rule refused it, or the file is outside the session's folders."""
    message = text(error.get("message")) or ""
    return error.get("type") in FORBIDDEN or message.startswith("Path not in workspace")


def _parsed(output: str) -> Any:
    """Parse the JSON of a tool, which the CLI passes on as text."""
    try:
        value = json.loads(output)
    except (ValueError, RecursionError):
        return output or None
    return value if isinstance(value, dict | list) else output


def _usage(stats: Mapping[str, Any]) -> Usage:
    given, total = count(stats.get("input_tokens")), count(stats.get("total_tokens"))
    output = count(stats.get("output_tokens"))
    if given is not None and total is not None and output is not None:
        output = max(output, total - given)  # thinking is counted only in the total
    return Usage(input_tokens=given, output_tokens=output, cached_tokens=count(stats.get("cached")))
