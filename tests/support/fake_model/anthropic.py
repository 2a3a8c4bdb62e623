"""Anthropic Messages: ``POST /v1/messages``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from starlette.responses import JSONResponse, Response

from support.fake_model.turn import CACHED, INPUT, OUTPUT, Answer, Turn, event, fresh, stream, texts

USAGE = {
    "input_tokens": INPUT,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": CACHED,
    "output_tokens": OUTPUT,
}


class Messages:
    def turn(self, body: Mapping[str, Any]) -> Turn:
        blocks = [block for message in body.get("messages", []) for block in _blocks(message)]
        return Turn(
            model=body.get("model", ""),
            system=texts(body.get("system", "")),
            user="\n".join(texts(block) for block in blocks if block.get("type") == "text"),
            offered=tuple(tool["name"] for tool in body.get("tools") or [] if "name" in tool),
            results=tuple(texts(block) for block in blocks if block.get("type") == "tool_result"),
            body=body,
        )

    def answer(self, turn: Turn, answer: Answer) -> Response:
        blocks = _content(answer)
        message = {
            "id": fresh("msg"),
            "type": "message",
            "role": "assistant",
            "model": turn.model,
            "stop_sequence": None,
            "stop_reason": "tool_use" if answer.calls else "end_turn",
            "content": blocks,
            "usage": USAGE,
        }
        if turn.body.get("stream"):
            return stream(_events(message, blocks))
        return JSONResponse(message)


def _blocks(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The user's side of a conversation."""
    if message.get("role") != "user":
        return []
    content = message.get("content")
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content or [])


def _content(answer: Answer) -> list[dict[str, Any]]:
    said = [{"type": "text", "text": answer.text}] if answer.text or not answer.calls else []
    return said + [
        {"type": "tool_use", "id": fresh("toolu"), "name": call.tool, "input": dict(call.args)}
        for call in answer.calls
    ]


def _events(message: dict[str, Any], blocks: list[dict[str, Any]]) -> Iterator[bytes]:
    begun = {**message, "content": [], "stop_reason": None, "usage": {**USAGE, "output_tokens": 1}}
    yield event("message_start", {"message": begun})
    for index, block in enumerate(blocks):
        if block["type"] == "text":
            empty, delta = {**block, "text": ""}, {"type": "text_delta", "text": block["text"]}
        else:
            empty = {**block, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        yield event("content_block_start", {"index": index, "content_block": empty})
        yield event("content_block_delta", {"index": index, "delta": delta})
        yield event("content_block_stop", {"index": index})
    ending = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield event("message_delta", {"delta": ending, "usage": USAGE})
    yield event("message_stop", {})
