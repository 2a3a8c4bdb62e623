"""OpenAI: Responses (``POST /v1/responses``) and Chat Completions (``POST /v1/chat/completions``)."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any

from starlette.responses import JSONResponse, Response

from support.fake_model.script import Call
from support.fake_model.turn import CACHED, INPUT, OUTPUT, Answer, Turn, event, fresh, stream, texts

BETWEEN = "::"  # a namespace and its tool, as one name for scripts
OUTPUTS = ("function_call_output", "custom_tool_call_output")


class Responses:
    def turn(self, body: Mapping[str, Any]) -> Turn:
        items = _items(body)
        revealed = [
            name
            for item in items
            if item.get("type") == "tool_search_output"
            for name in _names(item.get("tools"))
        ]
        developer = [texts(item) for item in items if item.get("role") in ("developer", "system")]
        return Turn(
            model=body.get("model", ""),
            system="\n".join(filter(None, [body.get("instructions") or "", *developer])),
            user="\n".join(texts(item) for item in items if item.get("role") == "user"),
            offered=(*_names(body.get("tools")), *revealed),
            results=tuple(_output(item) for item in items if item.get("type") in OUTPUTS),
            body=body,
        )

    def answer(self, turn: Turn, answer: Answer) -> Response:
        items = _searches(turn, answer) or [_called(call) for call in answer.calls]
        response = {
            "id": fresh("resp"),
            "object": "response",
            "created_at": int(time.time()),
            "model": turn.model,
            "status": "completed",
            "output": [*([_said(answer.text)] if answer.text or not items else []), *items],
            "usage": {
                "input_tokens": INPUT,
                "input_tokens_details": {"cached_tokens": CACHED},
                "output_tokens": OUTPUT,
                "output_tokens_details": {"reasoning_tokens": 5},
                "total_tokens": INPUT + OUTPUT,
            },
        }
        if turn.body.get("stream"):
            return stream(_response_events(response))
        return JSONResponse(response)


def _items(body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    given = body.get("input", [])
    return [{"role": "user", "content": given}] if isinstance(given, str) else list(given)


def _names(tools: Any) -> Iterator[str]:
    for tool in tools or []:
        if tool.get("type") == "namespace":
            yield from (
                f"{tool['name']}{BETWEEN}{inner['name']}" for inner in tool.get("tools", [])
            )
        elif tool.get("type") in ("function", "custom"):
            yield tool.get("name") or tool.get("function", {}).get("name", "")


def _output(item: Mapping[str, Any]) -> str:
    output = item.get("output")
    return texts(output) or json.dumps(output)


def _searches(turn: Turn, answer: Answer) -> list[dict[str, Any]]:
    """A tool that is not on offer may be hidden behind the client's own search: ask there first, once."""
    can = any(tool.get("type") == "tool_search" for tool in turn.body.get("tools") or [])
    did = any(item.get("type") == "tool_search_output" for item in _items(turn.body))
    missing = [call.tool for call in answer.calls if call.tool not in turn.offered]
    if not missing or did or not can:
        return []
    query = {"query": " ".join(missing).replace("_", " "), "limit": 8}
    return [
        {
            "type": "tool_search_call",
            "id": fresh("tsc"),
            "call_id": fresh("call"),
            "execution": "client",
            "status": "completed",
            "arguments": query,
        }
    ]


def _called(call: Call) -> dict[str, Any]:
    namespace, between, name = call.tool.rpartition(BETWEEN)
    return {
        "type": "function_call",
        "id": fresh("fc"),
        "call_id": fresh("call"),
        "name": name,
        "arguments": json.dumps(call.args),
        "status": "completed",
        **({"namespace": namespace} if between else {}),
    }


def _said(text: str) -> dict[str, Any]:
    return {
        "type": "message",
        "id": fresh("m"),
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": text, "annotations": []}],
    }


def _response_events(response: dict[str, Any]) -> Iterator[bytes]:
    begun = {**response, "status": "in_progress", "output": [], "usage": None}
    yield event("response.created", {"response": begun})
    for index, item in enumerate(response["output"]):
        at = {"output_index": index}
        empty = {"message": {"content": []}, "function_call": {"arguments": ""}}
        start = {**item, "status": "in_progress", **empty.get(item["type"], {})}
        yield event("response.output_item.added", {**at, "item": start})
        if item["type"] == "message":
            delta = {**at, "item_id": item["id"], "content_index": 0}
            text = item["content"][0]["text"]
            yield event("response.output_text.delta", {**delta, "delta": text})
        elif item["type"] == "function_call":
            delta = {**at, "item_id": item["id"], "delta": item["arguments"]}
            yield event("response.function_call_arguments.delta", delta)
        yield event("response.output_item.done", {**at, "item": item})
    yield event("response.completed", {"response": response})


class Chat:
    def turn(self, body: Mapping[str, Any]) -> Turn:
        said: dict[str, list[str]] = {"system": [], "developer": [], "user": [], "tool": []}
        for message in body.get("messages", []):
            said.setdefault(message.get("role", ""), []).append(texts(message.get("content")))
        return Turn(
            model=body.get("model", ""),
            system="\n".join(said["system"] + said["developer"]),
            user="\n".join(said["user"]),
            offered=tuple(tool["function"]["name"] for tool in body.get("tools") or []),
            results=tuple(said["tool"]),
            body=body,
        )

    def answer(self, turn: Turn, answer: Answer) -> Response:
        calls = [
            {
                "index": index,
                "id": fresh("call"),
                "type": "function",
                "function": {"name": call.tool, "arguments": json.dumps(call.args)},
            }
            for index, call in enumerate(answer.calls)
        ]
        message = {
            "role": "assistant",
            **({"tool_calls": calls} if calls else {}),
            **({"content": answer.text} if answer.text or not calls else {}),
        }
        ended = "tool_calls" if calls else "stop"
        usage = {
            "prompt_tokens": INPUT,
            "completion_tokens": OUTPUT,
            "total_tokens": INPUT + OUTPUT,
            "prompt_tokens_details": {"cached_tokens": CACHED},
        }
        base = {"id": fresh("chat"), "created": int(time.time()), "model": turn.model}
        if turn.body.get("stream"):
            return stream(_chunks(base, message, ended, usage))
        choice = {"index": 0, "message": message, "finish_reason": ended}
        whole = {**base, "object": "chat.completion", "choices": [choice], "usage": usage}
        return JSONResponse(whole)


def _chunks(
    base: dict[str, Any], message: dict[str, Any], ended: str, usage: dict[str, Any]
) -> Iterator[bytes]:
    chunk = {**base, "object": "chat.completion.chunk"}
    first = {"index": 0, "delta": message, "finish_reason": None}
    last = {"index": 0, "delta": {}, "finish_reason": ended}
    for part in ({**chunk, "choices": [first]}, {**chunk, "choices": [last], "usage": usage}):
        yield f"data: {json.dumps(part)}\n\n".encode()
    yield b"data: [DONE]\n\n"
