"""What Codex's app server tells while it works, in the words of ``codex exec``: one transcript reads both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from butlers.process.runner import Event
from butlers.runtimes.shapes import mapping, text

KINDS = {"agentMessage": "agent_message", "mcpToolCall": "mcp_tool_call"}
USAGE = {
    "inputTokens": "input_tokens",
    "outputTokens": "output_tokens",
    "cachedInputTokens": "cached_input_tokens",
    "cacheWriteInputTokens": "cache_write_input_tokens",
}
INTERRUPTED = "the turn was interrupted"


class Notices:
    """Read in the order in which they come: what was used is told before the turn's end, not with it."""

    def __init__(self) -> None:
        self._usage: dict[str, Any] = {}

    def event(self, notice: Event) -> Event | None:
        """The event that says the same; None when it is no news to a transcript."""
        told = mapping(notice.get("params"))
        match notice.get("method"):
            case "item/started" | "item/completed" as method:
                return _item(str(method), mapping(told.get("item")))
            case "error":
                return {"type": "error", "message": _complaint(told.get("error"))}
            case "thread/tokenUsage/updated":
                self._usage = _renamed(mapping(mapping(told.get("tokenUsage")).get("total")))
            case "turn/completed":
                return self._end(mapping(told.get("turn")))
        return None

    def _end(self, turn: Mapping[str, Any]) -> Event:
        if turn.get("status") == "completed":
            return {"type": "turn.completed", "usage": self._usage}
        message = _complaint(turn.get("error")) or INTERRUPTED
        return {"type": "turn.failed", "error": {"message": message}, "usage": self._usage}


def _item(method: str, item: Mapping[str, Any]) -> Event | None:
    kind = text(item.get("type")) or ""
    if kind == "agentMessage" and method == "item/started":
        return None  # still empty; what was said before counts until this is whole
    result = mapping(item.get("result"))
    said = {**item, "type": KINDS.get(kind, kind)}
    if result:
        said["result"] = {**result, "structured_content": result.get("structuredContent")}
    return {"type": method.replace("/", "."), "item": said}


def _complaint(error: Any) -> str:
    said = mapping(error)
    parts = (text(said.get("message")), text(said.get("additionalDetails")))
    return " ".join(part for part in parts if part)


def _renamed(total: Mapping[str, Any]) -> dict[str, Any]:
    return {ours: total.get(theirs) for theirs, ours in USAGE.items()}
