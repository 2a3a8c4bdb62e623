"""What a Gemini session says: ``init``, messages in pieces, uses and results of tools, and a ``result``.

Nothing in it tells whether the CLI reached its butler. A server that is down leaves a line on stderr; one
that refuses the token leaves nothing, and only the server itself knows.
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
from butlers.runtimes.failures import Failure
from butlers.runtimes.gemini.preload import DELIVERED
from butlers.runtimes.shapes import count, mapping, text

WHO = "Gemini CLI"
UNINSTRUCTED = (
    f"{WHO} did not let its butler's words reach the model as they are;"
    " what it said is not its butler's (is it the version that `butlers doctor` names?)"
)
FORBIDDEN = ("tool_not_registered", "policy_violation")  # how a refusal is called
_NO_SERVER = re.compile(r"MCP issues detected")
_ANSWERED = re.compile(
    r"^  status: \d{3}$", re.MULTILINE
)  # of the model's API, in the trace of an error
_NO_KEY = re.compile(r"[^\n]*(?:GEMINI_API_KEY|Auth method)[^\n]*")


class GeminiTranscript:
    def __init__(self, butler: str) -> None:
        self._butler = butler
        self._prefix = f"mcp_{butler}_"
        self._calls: dict[str, ToolCall] = {}  # in the order in which they began
        self._denials: list[str] = []
        self._model: str | None = None
        self._text = ""
        self._speaking = False
        self._usage = Usage()
        self._complaint = ""
        self._instructed = False  # the model has its butler's words, as they are
        self._status: str | None = None  # how it says that it ended: "success" or "error"

    def read(self, event: Event) -> bool:
        kind = event.get("type")
        if kind == "message" and event.get("role") == "assistant":
            self._hear(text(event.get("content")) or "")
        elif kind == "tool_use":
            self._use(event)
        elif kind == "tool_result":
            self._learn(event)
        elif kind == "init":
            self._model = text(event.get("model"))
        elif kind == DELIVERED:
            self._instructed = True
        elif kind == "error":
            self._complaint = text(event.get("message")) or ""
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
        failure = self._failure(ended)
        if failure is None and result.denials and not any(call.ok for call in result.tool_calls):
            failure = failures.refused(result.denials)
        return failure.of(result) if failure else result

    @property
    def _reached(self) -> bool:
        return any(call.ok and not call.of_cli for call in self._calls.values())

    def _hear(self, piece: str) -> None:
        """The answer is what it says after its last tool."""
        self._text = self._text + piece if self._speaking else piece
        self._speaking = True

    def _use(self, event: Event) -> None:
        self._speaking = False
        key, name = str(event.get("tool_id")), text(event.get("tool_name")) or ""
        arguments = dict(mapping(event.get("parameters")))
        of_cli = not name.startswith(self._prefix)
        tool = name.removeprefix(self._prefix)
        self._calls[key] = ToolCall(tool, arguments, ok=False, of_cli=of_cli)

    def _learn(self, event: Event) -> None:
        key, error = str(event.get("tool_id")), mapping(event.get("error"))
        if call := self._calls.get(key):
            said = text(error.get("message")) or _parsed(text(event.get("output")) or "")
            denied = call.of_cli and _forbidden(error)
            ok = event.get("status") == "success"
            self._calls[key] = replace(call, ok=ok, result=said, denied=denied)
            if denied:
                self._denials.append(_told(call))

    def _end(self, event: Event) -> None:
        self._status = text(event.get("status")) or ""
        self._usage = _usage(mapping(event.get("stats")))
        self._complaint = text(mapping(event.get("error")).get("message")) or self._complaint

    def _failure(self, ended: ProcessEnd) -> Failure | None:
        if self._status is None:
            return self._broken_off(ended)
        if _NO_SERVER.search(ended.exit.stderr) and not self._reached:
            return failures.unreached(WHO, self._butler)
        if self._status == "success":
            return None if self._instructed else Failure(Outcome.CRASHED, UNINSTRUCTED)
        *_, status = ("", *_ANSWERED.findall(ended.exit.stderr))  # its last event may not name it
        return failures.of_model(WHO, f"{self._complaint} {status}")

    def _broken_off(self, ended: ProcessEnd) -> Failure:
        if found := _NO_KEY.search(ended.exit.stderr):
            return Failure(Outcome.NO_CREDENTIAL, f"{WHO}: {failures.brief(found[0])}")
        return failures.cut_short(WHO, ended) or failures.of_exit(WHO, ended)


def _told(call: ToolCall) -> str:
    """It in a few words: the tool, and what it was to be used on."""
    target = text(call.arguments.get("command")) or text(call.arguments.get("file_path"))
    return f"{call.tool}: {target}" if target else call.tool


def _forbidden(error: Mapping[str, Any]) -> bool:
    """By a rule, or because the file lies outside of the session's folders."""
    said = text(error.get("message")) or ""
    return error.get("type") in FORBIDDEN or said.startswith("Path not in workspace")


def _parsed(output: str) -> Any:
    """Tools answer with JSON; the CLI hands it on as text."""
    try:
        value = json.loads(output)
    except (ValueError, RecursionError):
        return output or None
    return value if isinstance(value, dict | list) else output


def _usage(stats: Mapping[str, Any]) -> Usage:
    given, total = count(stats.get("input_tokens")), count(stats.get("total_tokens"))
    output = count(stats.get("output_tokens"))
    if given is not None and total is not None and output is not None:
        output = max(output, total - given)  # what it thought is told in the total alone
    return Usage(input_tokens=given, output_tokens=output, cached_tokens=count(stats.get("cached")))
