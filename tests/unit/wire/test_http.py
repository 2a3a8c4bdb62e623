"""The HTTP client against a server that writes raw bytes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from butlers.wire import http
from butlers.wire.http import ConnectFailed, HttpClient, HttpFailed

EMPTY = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


@dataclass
class Served:
    url: str = ""
    connections: int = 0
    heads: list[bytes] = field(default_factory=list)


@asynccontextmanager
async def serving(answers: list[bytes], then_close: bool = False) -> AsyncIterator[Served]:
    """Answer each request with the next bytes, on whatever connection it comes."""
    served = Served()
    writers: list[asyncio.StreamWriter] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.connections += 1
        writers.append(writer)
        while answers:
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError:
                break
            served.heads.append(head)
            writer.write(answers.pop(0))
            if then_close:
                break
        if then_close:
            writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    served.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
    try:
        yield served
    finally:
        server.close()
        for writer in writers:
            writer.close()


@pytest.mark.parametrize(
    ("answer", "content"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody", b"body"),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nbo\r\n2;x\r\ndy\r\n0\r\n\r\n",
            b"body",
        ),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nb\r\n0\r\nX: y\r\n\r\n", b"b"),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n", b""),
        (EMPTY, b""),
    ],
)
async def test_body_is_read_and_the_connection_used_again(answer: bytes, content: bytes) -> None:
    async with serving([answer, answer]) as served:
        client = HttpClient(served.url)
        assert [(await client.get("/x")).content for _ in range(2)] == [content, content]
        await client.close()
    assert served.connections == 1
    assert served.heads[0].startswith(b"GET /x HTTP/1.1\r\nHost: 127.0.0.1:")


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",
    ],
)
async def test_connection_that_the_server_closes_is_not_used_again(answer: bytes) -> None:
    async with serving([answer, answer]) as served:
        client = HttpClient(served.url)
        await client.get("/x")
        await client.get("/x")
        await client.close()
    assert served.connections == 2


async def test_idle_connection_that_was_closed_is_replaced() -> None:
    async with serving([EMPTY, EMPTY], then_close=True) as served:
        client = HttpClient(served.url)
        await client.get("/x")
        [idle] = client._idle
        async with asyncio.timeout(10):
            await idle.reader.read()
        assert (await client.get("/x")).status == 200
        await client.close()
    assert served.connections == 2


async def test_old_idle_connection_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "IDLE_S", 0.0)
    async with serving([EMPTY, EMPTY]) as served:
        client = HttpClient(served.url)
        await client.get("/x")
        await client.get("/x")
        await client.close()
    assert served.connections == 2


async def test_requests_at_the_same_time_have_their_own_connections() -> None:
    async with serving([EMPTY, EMPTY, EMPTY]) as served:
        client = HttpClient(served.url)
        await asyncio.gather(*(client.get("/x") for _ in range(3)))
        assert len(client._idle) == 3
        await client.close()
    assert served.connections == 3


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"nonsense\r\n\r\n",
        b"SSH-2.0 200\r\n\r\n",
        b"HTTP/1.1 okay\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * http.MAX_HEAD * 2,
    ],
)
async def test_answer_that_is_not_http_is_a_failure(answer: bytes) -> None:
    async with serving([answer], then_close=True) as served:
        client = HttpClient(served.url)
        with pytest.raises(HttpFailed) as caught:
            await client.get("/x")
        assert not isinstance(caught.value, ConnectFailed)
        assert not client._idle
        await client.close()


async def test_large_body_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MAX_BODY", 8)
    chunks = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"6\r\nsixsix\r\n" * 2
    unbounded = b"HTTP/1.1 200 OK\r\n\r\nmore than eight bytes"
    for answer in (chunks, unbounded):
        async with serving([answer], then_close=True) as served:
            client = HttpClient(served.url)
            with pytest.raises(HttpFailed):
                await client.get("/x")
            await client.close()


async def test_header_with_a_line_break_is_refused() -> None:
    client = HttpClient("http://127.0.0.1:1/mcp")
    with pytest.raises(ValueError, match="line break"):
        await client.post("/x", {"X": "a\r\nHost: evil"}, b"{}")


async def test_cancelled_request_closes_its_connection() -> None:
    async with serving([b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"]) as served:
        client = HttpClient(served.url)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await client.get("/x")
        assert not client._idle
        await client.close()
