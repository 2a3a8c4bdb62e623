"""A small HTTP/1.1 client for calls between the processes of a fleet, with connections that stay open.

Standard library only: importing a full client takes longer than a call on this machine, and so does each of
its requests. Requests are never repeated here: whether a lost answer may be asked for again is for the caller
to know.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

CONNECT_S = 10.0
IDLE_S = 60.0  # less than a butler keeps an idle connection, so that it never closes one that is being used
MAX_IDLE = 32
MAX_HEAD = 64 * 1024
MAX_BODY = 64 * 1024 * 1024
UNAUTHORIZED, TOO_LARGE, SERVICE_UNAVAILABLE = 401, 413, 503
_BODILESS = (204, 304)


class HttpFailed(Exception):
    """The request was or may have been sent, and there is no complete answer."""


class ConnectFailed(HttpFailed):
    """There is no connection; nothing was sent."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    status: int
    headers: Mapping[str, str]  # names in lower case
    content: bytes = field(repr=False)

    @property
    def text(self) -> str:
        return self.content.decode("utf-8", "replace")

    @property
    def is_stream(self) -> bool:
        return self.headers.get("content-type", "").startswith("text/event-stream")

    def json(self) -> Any:
        return json.loads(self.content)


@dataclass(slots=True)
class _Connection:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    idle_since: float = 0.0

    def is_usable(self, now: float) -> bool:
        closed = self.writer.is_closing() or self.reader.at_eof()
        return not closed and now - self.idle_since < IDLE_S


class HttpClient:
    """Requests to one origin. Connections are kept open, and used by one request at a time."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._secure = parts.scheme == "https"
        self._host = parts.hostname or ""
        self.port = parts.port or (443 if self._secure else 80)
        self._authority = parts.netloc
        self._idle: deque[_Connection] = deque()

    async def get(self, target: str) -> HttpAnswer:
        return await self._send("GET", target, {}, b"")

    async def post(self, target: str, headers: Mapping[str, str], body: bytes) -> HttpAnswer:
        sent = {**headers, "Content-Type": "application/json", "Content-Length": str(len(body))}
        return await self._send("POST", target, sent, body)

    async def close(self) -> None:
        while self._idle:
            self._idle.pop().writer.close()
        await asyncio.sleep(0)  # lets the transports close before their event loop does

    async def _send(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes
    ) -> HttpAnswer:
        lines = [f"{method} {target} HTTP/1.1", f"Host: {self._authority}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if any("\r" in line or "\n" in line for line in lines):
            raise ValueError("a header contains a line break")
        head = "\r\n".join((*lines, "", "")).encode("latin-1")
        connection = self._open_idle() or await self._connect()
        reusable = False
        try:
            # Not drained: a server may answer, and close, before it has read the whole body.
            connection.writer.write(head + body)
            answer, reusable = await _read_answer(connection.reader)
            return answer
        except (OSError, EOFError, asyncio.LimitOverrunError, ValueError) as error:
            raise HttpFailed(type(error).__name__) from error
        finally:
            self._release(connection, reusable)

    def _open_idle(self) -> _Connection | None:
        """Return the connection that was used last; close those that are too old."""
        now = asyncio.get_running_loop().time()
        while self._idle:
            if (found := self._idle.pop()).is_usable(now):
                return found
            found.writer.close()
        return None

    def _release(self, connection: _Connection, reusable: bool) -> None:
        if not reusable or connection.writer.is_closing() or len(self._idle) >= MAX_IDLE:
            connection.writer.close()
            return
        connection.idle_since = asyncio.get_running_loop().time()
        self._idle.append(connection)
        if not self._idle[0].is_usable(connection.idle_since):
            self._idle.popleft().writer.close()

    async def _connect(self) -> _Connection:
        secure = None
        if self._secure:
            import ssl

            secure = ssl.create_default_context()
        try:
            async with asyncio.timeout(CONNECT_S):
                opened = await asyncio.open_connection(
                    self._host, self.port, limit=MAX_HEAD, ssl=secure
                )
        except OSError as error:  # also a time limit
            raise ConnectFailed(str(error)) from error
        return _Connection(*opened)


async def _read_answer(reader: asyncio.StreamReader) -> tuple[HttpAnswer, bool]:
    """Return the answer, and whether the connection may be used again."""
    version, status, headers = await _read_head(reader)
    while 100 <= status < 200:
        version, status, headers = await _read_head(reader)
    kept = "close" not in headers.get("connection", "").lower() and version == "HTTP/1.1"
    if status in _BODILESS:
        return HttpAnswer(status, headers, b""), kept
    if "chunked" in headers.get("transfer-encoding", "").lower():
        return HttpAnswer(status, headers, await _read_chunks(reader)), kept
    if (length := headers.get("content-length")) is not None:
        content = await reader.readexactly(_bounded(int(length)))
        return HttpAnswer(status, headers, content), kept
    return HttpAnswer(status, headers, await _read_to_end(reader)), False


async def _read_head(reader: asyncio.StreamReader) -> tuple[str, int, dict[str, str]]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head[:-4].split("\r\n")
    version, status, *_ = first.split(" ", 2)
    if not version.startswith("HTTP/1."):
        raise ValueError("not HTTP/1")
    pairs = (line.partition(":") for line in lines)
    return version, int(status), {name.strip().lower(): value.strip() for name, _, value in pairs}


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    parts, total = [], 0
    while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
        total = _bounded(total + _bounded(size))
        parts.append((await reader.readexactly(size + 2))[:-2])
    while (await reader.readuntil(b"\r\n")) != b"\r\n":
        pass  # trailers
    return b"".join(parts)


async def _read_to_end(reader: asyncio.StreamReader) -> bytes:
    parts, total = [], 0
    while part := await reader.read(MAX_HEAD):
        total = _bounded(total + len(part))
        parts.append(part)
    return b"".join(parts)


def _bounded(size: int) -> int:
    if not 0 <= size <= MAX_BODY:
        raise ValueError("the answer is too large")
    return size
