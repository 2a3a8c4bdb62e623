"""Two transports at one URL: streamable HTTP and the older SSE handshake, both at ``/mcp``.

    POST, DELETE, and GET with a session id or a protocol version    streamable HTTP
    GET with neither                                                 the SSE handshake
    /messages/                                                       posts of SSE clients

At shutdown each open stream is ended as if its client had disconnected, so that it does not keep the
server open.
"""

from __future__ import annotations

import asyncio
from typing import Any

from fastmcp import FastMCP
from starlette.applications import Starlette
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from butlers.domain.trace import HEADER, TraceContext, in_trace

PATH = "/mcp"
STREAMS_END_S = 5.0
CALLS_END_S = 0.5  # if calls have exceeded the shutdown time


class DualTransport:
    def __init__(self, mcp: FastMCP) -> None:
        self.application: Starlette = mcp.http_app(
            transport="http", path=PATH, host_origin_protection=True
        )
        # Its lifespan is not run: the MCP server's own is reference-counted and shared by both.
        self._sse: ASGIApp = mcp.http_app(transport="sse", path=PATH, host_origin_protection=True)
        self._closing = asyncio.Event()
        self._requests: set[asyncio.Task[Any]] = set()

    async def end_streams(self, patience_s: float = STREAMS_END_S) -> None:
        """End every open stream; cancel requests that have not ended after ``patience_s``."""
        self._closing.set()
        if not self._requests:
            return
        _, late = await asyncio.wait(self._requests, timeout=patience_s)
        for request in late:
            request.cancel()
        await asyncio.gather(*late, return_exceptions=True)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = asyncio.current_task()
        assert request is not None
        self._requests.add(request)
        try:
            await self._choose(scope, receive, send)
        finally:
            self._requests.discard(request)

    async def _choose(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        opens_stream = scope["method"] == "GET" and scope["path"] == PATH
        app = self._sse if _is_legacy(scope, headers, opens_stream) else self.application
        with in_trace(_trace_of(headers)):
            if opens_stream or headers.get(b"mcp-method") == b"subscriptions/listen":
                await self._serve_stream(app, scope, receive, send)
            else:
                await app(scope, receive, send)

    async def _serve_stream(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve an open stream, and finish its body if the shutdown ended it."""
        unfinished = False

        async def watched(message: Message) -> None:
            nonlocal unfinished
            unfinished = message["type"] == "http.response.start" or bool(message.get("more_body"))
            await send(message)

        await app(scope, self._until_closing(receive), watched)
        if unfinished and self._closing.is_set():
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _until_closing(self, receive: Receive) -> Receive:
        async def next_message() -> Message:
            message = asyncio.ensure_future(receive())
            closing = asyncio.ensure_future(self._closing.wait())
            try:
                await asyncio.wait({message, closing}, return_when=asyncio.FIRST_COMPLETED)
                return message.result() if message.done() else {"type": "http.disconnect"}
            finally:
                message.cancel()
                closing.cancel()

        return next_message


def _trace_of(headers: dict[bytes, bytes]) -> TraceContext | None:
    """Return the caller's trace, or None to begin a new one."""
    value = headers.get(HEADER.encode())
    return None if value is None else TraceContext.parse(value.decode("latin-1"))


def _is_legacy(scope: Scope, headers: dict[bytes, bytes], opens_stream: bool) -> bool:
    # Gemini never sends a protocol version, so the session id is checked as well.
    without_session = b"mcp-session-id" not in headers and b"mcp-protocol-version" not in headers
    return (opens_stream and without_session) or scope["path"].startswith("/messages")
