"""One request to a model, whatever API it came by, and what it answers."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from starlette.responses import Response, StreamingResponse

from support.fake_model.script import Call

INPUT, CACHED, OUTPUT = 1000, 200, 25  # what every answer is said to have cost
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Turn:
    model: str
    system: str  # all of it, as one text
    user: str  # what came from the user's side and is no tool result
    offered: tuple[str, ...]  # the names of the tools
    results: tuple[str, ...]  # of all tool calls so far, in their order
    body: Mapping[str, Any]

    @property
    def text(self) -> str:
        """All that the model was sent."""
        return json.dumps(self.body, ensure_ascii=False)

    @property
    def strings(self) -> tuple[str, ...]:
        """Every text in it, each as it stands."""
        return tuple(_strings(self.body))

    def find(self, tool: str) -> str | None:
        """The offered tool whose name ends so; of several the one that says least beside it."""
        return min((name for name in self.offered if name.endswith(tool)), key=len, default=None)


@dataclass(frozen=True)
class Answer:
    """Answer of a model: calls, a text, or a text before calls."""

    text: str = ""
    calls: tuple[Call, ...] = ()  # their tools named as offered


class Dialect(Protocol):
    """One API: how its requests are read and its answers written."""

    def turn(self, body: Mapping[str, Any]) -> Turn: ...
    def answer(self, turn: Turn, answer: Answer) -> Response: ...


def fresh(prefix: str) -> str:
    return f"{prefix}_{next(_numbers):08d}"


def texts(content: Any) -> str:
    """All text in a message's content, however deep."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(filter(None, map(texts, content)))
    if isinstance(content, Mapping):
        return texts(content.get("text") or content.get("content") or "")
    return ""


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    inner = value.values() if isinstance(value, Mapping) else value
    if isinstance(inner, Iterable) and not isinstance(inner, str):
        for one in inner:
            yield from _strings(one)


def event(name: str, data: Mapping[str, Any]) -> bytes:
    return f"event: {name}\ndata: {json.dumps({'type': name, **data})}\n\n".encode()


def plain_event(data: Mapping[str, Any]) -> bytes:
    return f"data: {json.dumps(data)}\r\n\r\n".encode()


def stream(parts: Iterable[bytes]) -> Response:
    async def send() -> AsyncIterator[bytes]:
        for part in parts:
            yield part

    return StreamingResponse(send(), media_type="text/event-stream")
