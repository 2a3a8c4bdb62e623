"""Read the events of a Codex session: ``thread.started``, items as they start and end, and the turn's end."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from butlers.domain.session import Outcome, SessionResult, ToolCall, Usage
from butlers.process.runner import Event, ProcessEnd
from butlers.runtimes import failures
from butlers.runtimes.failures import SessionFailure
from butlers.runtimes.formats import count, mapping, mappings, text

PROGRAM = "Codex"

# Items of the CLI's own tools, and the fields that are reported.
_OWN = {"command_execution": ("command",), "file_change": ("changes",), "web_search": ("query",)}
_UNSUPPORTED = re.compile(r"unsupported call: (?!mcp__)(\S+)")
_NO_SERVER = re.compile(r"required MCP servers failed to initialize: [^:\n]*: ([^\n\[]*)")
_NO_KEY = re.compile(r"Missing environment variable: [^\n]*")
KINDS = {"agentMessage": "agent_message", "mcpToolCall": "mcp_tool_call"}
USAGE = {
    "inputTokens": "input_tokens",
    "outputTokens": "output_tokens",
    "cachedInputTokens": "cached_input_tokens",
    "cacheWriteInputTokens": "cache_write_input_tokens",
}
INTERRUPTED = "the turn was interrupted"


class CodexTranscript:
    def __init__(self, butler: str, model: str | None = None) -> None:
        self._butler = butler
        self._model = model
        self._calls: dict[str, ToolCall] = {}  # by item, in the order of their start
        self._declined: list[str] = []
        self._text = ""
        self._usage = Usage()
        self._completed = False
        self._failed: str | None = None
        self._error = ""

    def read(self, event: Event) -> bool:
        kind = event.get("type")
        if kind in ("item.started", "item.completed"):
            self._item(mapping(event.get("item")))
        elif kind == "error":  # also sent for a failure that is retried
            self._error = text(event.get("message")) or ""
        elif kind == "turn.completed":
            self._completed = True
            self._usage = _usage(mapping(event.get("usage")))
        elif kind == "turn.failed":  # only the app server then reports the usage
            self._usage = _usage(mapping(event.get("usage")))
            self._failed = text(mapping(event.get("error")).get("message")) or self._error
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
            model=self._model,
            denials=denials,
            exit=ended.exit,
        )
        return failures.conclude(result, self._failure(ended))

    def _item(self, item: Mapping[str, Any]) -> None:
        """Read one item. One of the kind ``error`` is a remark: the session goes on."""
        kind = item.get("type")
        if kind == "agent_message":
            self._text = text(item.get("text")) or ""
        elif kind == "mcp_tool_call" and item.get("server") == self._butler:
            self._calls[str(item.get("id"))] = _call(item)
        else:
            self._own_tool(text(kind) or "a tool", item)

    def _own_tool(self, kind: str, item: Mapping[str, Any]) -> None:
        """Record the use of a tool of the CLI itself."""
        declined = item.get("status") == "declined"
        if declined:
            self._declined.append(text(item.get("command")) or kind)
        if declined or kind in _OWN:
            arguments = {name: item[name] for name in _OWN.get(kind, ("command",)) if name in item}
            ok = item.get("status", "completed") == "completed"
            result = text(item.get("aggregated_output"))
            self._calls[str(item.get("id"))] = ToolCall(
                kind, arguments, ok, result, of_cli=True, denied=declined
            )

    def _failure(self, ended: ProcessEnd) -> SessionFailure | None:
        if self._completed:
            return None
        if self._failed is not None:
            return self._known(self._failed) or failures.of_model(PROGRAM, self._failed)
        return (
            failures.cut_short(PROGRAM, ended)
            or self._known(ended.exit.stderr)
            or failures.of_exit(PROGRAM, ended)
        )

    def _known(self, message: str) -> SessionFailure | None:
        if found := _NO_SERVER.search(message):
            return failures.unreached(PROGRAM, self._butler, found[1])
        if found := _NO_KEY.search(message):
            return SessionFailure(Outcome.NO_CREDENTIAL, f"{PROGRAM}: {failures.brief(found[0])}")
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


def _usage(usage: Mapping[str, Any]) -> Usage:
    return Usage(
        input_tokens=count(usage.get("input_tokens")),
        output_tokens=count(usage.get("output_tokens")),
        cached_tokens=count(usage.get("cached_input_tokens")),
        written_tokens=count(usage.get("cache_write_input_tokens")) or 0,
    )


class Notices:
    """Translate notices of Codex's app server into events of ``codex exec``.

    Read them in order: the usage comes before the end of its turn, not with it.
    """

    def __init__(self) -> None:
        self._usage: dict[str, Any] = {}

    def event(self, notice: Event) -> Event | None:
        """Return the event that says the same; None if no transcript needs it."""
        params = mapping(notice.get("params"))
        match notice.get("method"):
            case "item/started" | "item/completed" as method:
                return _item(str(method), mapping(params.get("item")))
            case "error":
                return {"type": "error", "message": _error_text(params.get("error"))}
            case "thread/tokenUsage/updated":
                self._usage = _renamed(mapping(mapping(params.get("tokenUsage")).get("total")))
            case "turn/completed":
                return self._end(mapping(params.get("turn")))
        return None

    def _end(self, turn: Mapping[str, Any]) -> Event:
        if turn.get("status") == "completed":
            return {"type": "turn.completed", "usage": self._usage}
        message = _error_text(turn.get("error")) or INTERRUPTED
        return {"type": "turn.failed", "error": {"message": message}, "usage": self._usage}


def _item(method: str, item: Mapping[str, Any]) -> Event | None:
    kind = text(item.get("type")) or ""
    if kind == "agentMessage" and method == "item/started":
        return None  # still empty; the earlier text counts until this one is complete
    result = mapping(item.get("result"))
    translated = {**item, "type": KINDS.get(kind, kind)}
    if result:
        translated["result"] = {**result, "structured_content": result.get("structuredContent")}
    return {"type": method.replace("/", "."), "item": translated}


def _error_text(error: Any) -> str:
    fields = mapping(error)
    parts = (text(fields.get("message")), text(fields.get("additionalDetails")))
    return " ".join(part for part in parts if part)


def _renamed(total: Mapping[str, Any]) -> dict[str, Any]:
    return {ours: total.get(theirs) for theirs, ours in USAGE.items()}
