"""What a Codex session says: ``thread.started``, items as they start and end, and how the turn ended."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from butlers.domain.session import Outcome, SessionResult, ToolCall, Usage
from butlers.process.runner import Event, ProcessEnd
from butlers.runtimes import failures
from butlers.runtimes.failures import Failure
from butlers.runtimes.shapes import count, mapping, mappings, text

WHO = "Codex"

# Its own tools, as it names what they did, and what of that is told.
_OWN = {"command_execution": ("command",), "file_change": ("changes",), "web_search": ("query",)}
_UNSUPPORTED = re.compile(r"unsupported call: (?!mcp__)(\S+)")
_NO_SERVER = re.compile(r"required MCP servers failed to initialize: [^:\n]*: ([^\n\[]*)")
_NO_KEY = re.compile(r"Missing environment variable: [^\n]*")


class CodexTranscript:
    def __init__(self, butler: str) -> None:
        self._butler = butler
        self._calls: dict[str, ToolCall] = {}  # by item, in the order in which they began
        self._declined: list[str] = []
        self._text = ""
        self._usage = Usage()
        self._completed = False
        self._failed: str | None = None
        self._complaint = ""

    def read(self, event: Event) -> bool:
        kind = event.get("type")
        if kind in ("item.started", "item.completed"):
            self._item(mapping(event.get("item")))
        elif kind == "error":  # said also of what is tried again
            self._complaint = text(event.get("message")) or ""
        elif kind == "turn.completed":
            self._completed = True
            self._usage = _usage(mapping(event.get("usage")))
        elif kind == "turn.failed":  # only its app server then knows what was used
            self._usage = _usage(mapping(event.get("usage")))
            self._failed = text(mapping(event.get("error")).get("message")) or self._complaint
        return self._completed or self._failed is not None

    def result(self, ended: ProcessEnd) -> SessionResult:
        missing = _UNSUPPORTED.findall(ended.exit.stderr)
        denials = (*self._declined, *missing)
        absent = (ToolCall(name, {}, ok=False, of_cli=True, denied=True) for name in missing)
        result = SessionResult(
            Outcome.OK,
            self._text,
            (*self._calls.values(), *absent),
            self._usage,
            denials=denials,
            exit=ended.exit,
        )
        failure = self._failure(ended)
        if failure is None and denials and not any(call.ok for call in result.tool_calls):
            failure = failures.refused(denials)
        return failure.of(result) if failure else result

    def _item(self, item: Mapping[str, Any]) -> None:
        """An item of the kind ``error`` is a remark: the session goes on."""
        kind = item.get("type")
        if kind == "agent_message":
            self._text = text(item.get("text")) or ""
        elif kind == "mcp_tool_call" and item.get("server") == self._butler:
            self._calls[str(item.get("id"))] = _call(item)
        else:
            self._own(text(kind) or "a tool", item)

    def _own(self, kind: str, item: Mapping[str, Any]) -> None:
        """What it did without its butler."""
        declined = item.get("status") == "declined"
        if declined:
            self._declined.append(text(item.get("command")) or kind)
        if declined or kind in _OWN:
            told = {name: item[name] for name in _OWN.get(kind, ("command",)) if name in item}
            ok = item.get("status", "completed") == "completed"
            result = text(item.get("aggregated_output"))
            self._calls[str(item.get("id"))] = ToolCall(
                kind, told, ok, result, of_cli=True, denied=declined
            )

    def _failure(self, ended: ProcessEnd) -> Failure | None:
        if self._completed:
            return None
        if self._failed is not None:
            return self._known(self._failed) or failures.of_model(WHO, self._failed)
        return (
            failures.cut_short(WHO, ended)
            or self._known(ended.exit.stderr)
            or failures.of_exit(WHO, ended)
        )

    def _known(self, message: str) -> Failure | None:
        if found := _NO_SERVER.search(message):
            return failures.unreached(WHO, self._butler, found[1])
        if found := _NO_KEY.search(message):
            return Failure(Outcome.NO_CREDENTIAL, f"{WHO}: {failures.brief(found[0])}")
        return None


def _call(item: Mapping[str, Any]) -> ToolCall:
    result, error = mapping(item.get("result")), mapping(item.get("error"))
    return ToolCall(
        tool=text(item.get("tool")) or "",
        arguments=dict(mapping(item.get("arguments"))),
        ok=item.get("status") == "completed" and not error,
        result=text(error.get("message")) or _content(result),
    )


def _content(result: Mapping[str, Any]) -> Any:
    structured = result.get("structured_content")
    if structured is not None:
        return structured
    parts = [text(part.get("text")) or "" for part in mappings(result.get("content"))]
    return "\n".join(parts) or None


def _usage(said: Mapping[str, Any]) -> Usage:
    return Usage(
        input_tokens=count(said.get("input_tokens")),
        output_tokens=count(said.get("output_tokens")),
        cached_tokens=count(said.get("cached_input_tokens")),
        written_tokens=count(said.get("cache_write_input_tokens")) or 0,
    )
