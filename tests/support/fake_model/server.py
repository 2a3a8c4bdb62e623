"""The server of the fake model: on a free port of loopback, in the loop of the test that uses it."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from support.fake_model.anthropic import Messages
from support.fake_model.gemini import Generate
from support.fake_model.openai import Chat, Responses
from support.fake_model.script import (
    Call,
    Cut,
    Fail,
    Garble,
    Hang,
    Quote,
    Say,
    Script,
    Use,
    found_in,
    next_step,
)
from support.fake_model.turn import Answer, Dialect, Turn, stream

NOT_OFFERED = "TOOL_NOT_OFFERED"
ANY = ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"]


@dataclass(frozen=True)
class Invocation:
    """One request, as it came."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]


class FakeModel:
    """A fake model: its script, and every request that it received."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.script: Script = [Say("Done.")]
        # A script for one turn, made when it is known what was asked; None: the script above.
        self.choose: Callable[[Turn], Script | None] = lambda _turn: None
        self.requests: list[Invocation] = []  # every one, also those that are no turn
        self.turns: list[Turn] = []
        self.hanging = 0  # requests that wait to be released
        self._failures: Counter[int] = Counter()
        self._released = asyncio.Event()

    def release(self) -> None:
        """Let those that hang be answered, and never hang again."""
        self._released.set()

    @property
    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/v1/messages", self._messages, methods=["POST"]),
                Route("/v1/messages/count_tokens", self._count, methods=["POST"]),
                Route("/v1/responses", self._responses, methods=["POST"]),
                Route("/v1/chat/completions", self._chat, methods=["POST"]),
                Route("/v1/models", self._models, methods=["GET"]),
                Route("/v1beta/models/{model}:{verb}", self._gemini, methods=["POST"]),
                Route("/{rest:path}", self._other, methods=ANY),
            ]
        )

    # -- routes ------------------------------------------------------------------------------

    async def _messages(self, request: Request) -> Response:
        return await self._answer(request, Messages())

    async def _responses(self, request: Request) -> Response:
        return await self._answer(request, Responses())

    async def _chat(self, request: Request) -> Response:
        return await self._answer(request, Chat())

    async def _gemini(self, request: Request) -> Response:
        verb = request.path_params["verb"]
        if verb == "countTokens":
            return await self._count(request)
        streams = verb == "streamGenerateContent"
        return await self._answer(request, Generate(request.path_params["model"], streams=streams))

    async def _count(self, request: Request) -> Response:
        await self._log(request)
        return JSONResponse({"input_tokens": 1000, "totalTokens": 1000})

    async def _models(self, request: Request) -> Response:
        await self._log(request)
        return JSONResponse({"object": "list", "data": [], "models": []})

    async def _other(self, request: Request) -> Response:
        await self._log(request)
        found = request.method in ("GET", "HEAD") and request.url.path == "/"
        return Response(status_code=200 if found else 404)

    # -- what it does ------------------------------------------------------------------------

    async def _log(self, request: Request) -> Mapping[str, Any]:
        raw = await request.body()
        if request.headers.get("content-encoding") == "gzip":
            raw = gzip.decompress(raw)
        try:
            body = json.loads(raw) if raw else {}
        except ValueError:
            body = {"raw": raw.decode("utf-8", "replace")}
        asked = Invocation(request.method, request.url.path, dict(request.headers), body)
        self.requests.append(asked)
        return asked.body

    async def _answer(self, request: Request, dialect: Dialect) -> Response:
        turn = dialect.turn(await self._log(request))
        self.turns.append(turn)
        script = found_in(turn.user) or self.choose(turn) or self.script
        number, step = next_step(script, len(turn.results), self._failures)
        await asyncio.sleep(step.sleep)
        if isinstance(step, Hang):
            await self._hang()
        elif isinstance(step, Fail):
            self._failures[number] += 1
            return JSONResponse(step.body, step.status, step.headers)
        elif isinstance(step, Cut):
            self._failures[number] += 1
            return _cut(dialect.answer(turn, Answer("This answer is not complete.")))
        elif isinstance(step, Garble):
            self._failures[number] += 1
            return stream([b'data: {"type": "mess\n\n', b"<html>Bad gateway</html>\n\n"])
        elif isinstance(step, Use):
            return dialect.answer(turn, _use(turn, step))
        elif isinstance(step, Quote):
            return dialect.answer(turn, Answer(step.text(turn.results)))
        return dialect.answer(turn, Answer(step.text if isinstance(step, Say) else "Released."))

    async def _hang(self) -> None:
        self.hanging += 1
        try:
            await self._released.wait()
        finally:
            self.hanging -= 1


def _cut(response: Response) -> Response:
    assert isinstance(response, StreamingResponse)
    whole = response.body_iterator

    async def begin() -> AsyncIterator[Any]:
        async for part in whole:
            yield part
            await asyncio.sleep(0.05)
            raise ConnectionResetError

    response.body_iterator = begin()
    return response


def _use(turn: Turn, step: Use) -> Answer:
    calls = []
    for call in step.calls:
        name = turn.find(call.tool) or (call.tool if call.anyway else None)
        if name is None and not _may_search(turn):
            return Answer(f"{NOT_OFFERED} {call.tool}; offered: {', '.join(turn.offered)}")
        calls.append(Call(name or call.tool, call.args))
    return Answer(step.saying, tuple(calls))


def _may_search(turn: Turn) -> bool:
    """A CLI may hide its tools behind a search of its own; then the dialect asks for it first."""
    items = turn.body.get("input")
    searched = isinstance(items, list) and any(
        item.get("type") == "tool_search_output" for item in items
    )
    tools = turn.body.get("tools") or []
    return not searched and any(tool.get("type") == "tool_search" for tool in tools)


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # signals are the test's own


@asynccontextmanager
async def fake_model() -> AsyncIterator[FakeModel]:
    with contextlib.closing(socket.socket()) as listener:
        listener.bind(("127.0.0.1", 0))
        model = FakeModel(listener.getsockname()[1])
        config = uvicorn.Config(model.app, log_level="error", lifespan="off", access_log=False)
        server = _Server(config)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield model
        finally:
            model.release()
            server.should_exit = server.force_exit = True
            await serving
