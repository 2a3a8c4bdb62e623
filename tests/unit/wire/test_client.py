"""The light MCP client against a small real HTTP server: what it sends, and what it makes of answers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from butlers.domain.errors import (
    AnswerLost,
    ButlersError,
    InvalidArguments,
    MessageTooLarge,
    NotAuthenticated,
    NotFound,
    PeerFailed,
    PeerUnavailable,
    PhaseFailed,
    QueueFull,
)
from butlers.wire.client import META, PROTOCOL, McpClient, tool_value


@dataclass
class Peer:
    """Answers every request with the same bytes; without any, it hangs up."""

    status: int = 200
    body: bytes | None = b""
    kind: str = "application/json"
    requests: list[tuple[dict[str, str], Any]] = field(default_factory=list)
    url: str = ""

    def answers(self, body: Any, status: int = 200) -> None:
        self.status, self.body = status, json.dumps(body).encode()

    def streams(self, *events: str) -> None:
        self.kind, self.body = "text/event-stream", "".join(events).encode()

    def results(self, **result: Any) -> None:
        self.answers({"jsonrpc": "2.0", "id": 1, "result": result})


@pytest.fixture
def peer() -> Iterator[Peer]:
    told = Peer()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            sent = self.rfile.read(int(self.headers["Content-Length"]))
            told.requests.append((dict(self.headers), json.loads(sent)))
            if told.body is None:
                self.close_connection = True
                return
            self.send_response(told.status)
            self.send_header("Content-Type", told.kind)
            self.send_header("Content-Length", str(len(told.body)))
            self.end_headers()
            self.wfile.write(told.body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        told.url = f"http://127.0.0.1:{server.server_address[1]}/mcp"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield told
        server.shutdown()
        thread.join()


async def call(url: str, tool: str = "note", **arguments: Any) -> Any:
    async with McpClient("health", url, lambda: "the-token", timeout_s=30) as client:
        return await client.call(tool, arguments)


# -- what it sends ---------------------------------------------------------------------------------


async def test_a_call_is_one_self_contained_request(peer: Peer) -> None:
    peer.results(structuredContent={"kg": 80.4}, content=[])
    assert await call(peer.url, weight="80,4 kg – 😀") == {"kg": 80.4}
    [(headers, body)] = peer.requests
    assert headers["Authorization"] == "Bearer the-token"
    assert headers["MCP-Protocol-Version"] == PROTOCOL
    assert (headers["Mcp-Method"], headers["Mcp-Name"]) == ("tools/call", "note")
    assert (body["jsonrpc"], body["method"]) == ("2.0", "tools/call")
    assert body["params"]["name"] == "note"
    assert body["params"]["arguments"] == {"weight": "80,4 kg – 😀"}
    assert body["params"]["_meta"][f"{META}/protocolVersion"] == PROTOCOL


async def test_each_request_has_its_id_and_a_fresh_token(peer: Peer) -> None:
    peer.results(structuredContent={})
    tokens = iter(("one", "two"))
    async with McpClient("health", peer.url, lambda: next(tokens)) as client:
        await client.call("note")
        await client.call("note")
    assert [headers["Authorization"] for headers, _ in peer.requests] == [
        "Bearer one",
        "Bearer two",
    ]
    assert len({body["id"] for _, body in peer.requests}) == 2


async def test_tools_are_listed(peer: Peer) -> None:
    peer.results(tools=[{"name": "note"}])
    async with McpClient("health", peer.url, lambda: "t") as client:
        assert await client.list_tools() == [{"name": "note"}]
    [(headers, body)] = peer.requests
    assert headers["Mcp-Method"] == body["method"] == "tools/list"
    assert "Mcp-Name" not in headers


# -- what it makes of an answer --------------------------------------------------------------------


@pytest.mark.parametrize("value", [[1, 2], "text", 7, None, True])
async def test_a_result_that_the_server_wrapped_is_unwrapped(peer: Peer, value: Any) -> None:
    peer.results(structuredContent={"result": value}, _meta={"fastmcp": {"wrap_result": True}})
    assert await call(peer.url) == value


async def test_a_result_that_merely_looks_wrapped_is_left_alone(peer: Peer) -> None:
    peer.results(structuredContent={"result": 1})
    assert await call(peer.url) == {"result": 1}


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("not_found", NotFound),
        ("queue_full", QueueFull),
        ("message_too_large", MessageTooLarge),
        ("phase_failed", PhaseFailed),  # its constructor takes other arguments
        ("a_code_of_a_newer_version", ButlersError),
    ],
)
@pytest.mark.parametrize("retryable", [True, False])
async def test_the_error_a_tool_raised_is_raised_here_again(
    peer: Peer, code: str, kind: type[ButlersError], retryable: bool
) -> None:
    error = {"code": code, "message": "it says", "hint": "do that", "retryable": retryable}
    peer.results(isError=True, structuredContent={"error": error}, content=[])
    with pytest.raises(ButlersError) as caught:
        await call(peer.url)
    raised = caught.value
    assert type(raised) is kind
    assert (raised.message, raised.hint, raised.retryable) == ("it says", "do that", retryable)
    assert kind.retryable == (kind is QueueFull), "what one peer judged must not stick to the class"


async def test_an_error_without_fields_is_the_peers_failure_with_its_text(peer: Peer) -> None:
    peer.results(isError=True, content=[{"type": "text", "text": "Out of"}, {"text": "cheese"}])
    with pytest.raises(PeerFailed, match=r"health\.note: Out of cheese"):
        await call(peer.url)


@pytest.mark.parametrize(
    ("code", "kind"), [(-32602, InvalidArguments), (-32601, InvalidArguments), (-32603, PeerFailed)]
)
async def test_protocol_error_is_typed(peer: Peer, code: int, kind: type[ButlersError]) -> None:
    peer.answers({"jsonrpc": "2.0", "id": 1, "error": {"code": code, "message": "no such tool"}})
    with pytest.raises(kind, match="health: no such tool"):
        await call(peer.url)


async def test_a_refused_token_says_what_may_be_wrong(peer: Peer) -> None:
    peer.answers({"error": "invalid_token"}, status=401)
    with pytest.raises(NotAuthenticated, match="health refused the token") as caught:
        await call(peer.url)
    assert "BUTLERS_HOME" in (caught.value.hint or "")


@pytest.mark.parametrize("status", [200, 404, 502])
@pytest.mark.parametrize(
    "body",
    [b"", b"<html>Bad gateway</html>", b'"text"', b"[]", b"null", b"{}", b"\xff\xfe", b'{"x"'],
)
async def test_unreadable_answer_is_a_peer_failure(peer: Peer, body: bytes, status: int) -> None:
    peer.status, peer.body = status, body
    with pytest.raises(PeerFailed, match=f"health answered {status} without") as caught:
        await call(peer.url)
    assert not caught.value.retryable


# -- a call that takes long ------------------------------------------------------------------------

PING = ": ping\r\n\r\n"


def event(**message: Any) -> str:
    body = json.dumps({"jsonrpc": "2.0", **message}, ensure_ascii=False)
    return f"event: message\r\ndata: {body}\r\n\r\n"


async def test_a_long_call_is_answered_by_the_last_event_of_a_stream(peer: Peer) -> None:
    said = {"text": "two\u2028lines\x85here"}
    progress = event(method="notifications/progress", params={"progress": 1})
    peer.streams(PING, progress, PING, event(id=1, result={"structuredContent": said}))
    assert await call(peer.url) == said


async def test_the_error_of_a_long_call_is_raised_as_any_other(peer: Peer) -> None:
    peer.streams(PING, event(id=1, error={"code": -32602, "message": "no such thing"}))
    with pytest.raises(InvalidArguments, match="no such thing"):
        await call(peer.url)


async def test_stream_without_an_answer_raises_answer_lost(peer: Peer) -> None:
    peer.streams(PING, PING)
    with pytest.raises(AnswerLost):
        await call(peer.url)


async def test_endless_stream_times_out() -> None:
    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
        writer.write(head.encode())
        with contextlib.suppress(ConnectionError):
            while True:
                writer.write(PING.encode())
                await writer.drain()
                await asyncio.sleep(0.01)

    server = await asyncio.start_server(drip, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
    async with McpClient("health", url, lambda: "t") as client:
        with pytest.raises(AnswerLost):
            await client.call("note", timeout_s=0.2)
    server.close()


# -- when nobody answers ---------------------------------------------------------------------------


async def test_unreachable_peer_is_retryable() -> None:
    with socket.socket() as taken:  # bound and not listening: nobody else can be there
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/mcp"
        with pytest.raises(PeerUnavailable) as caught:
            await call(url)
    assert type(caught.value) is PeerUnavailable, "nothing can have happened there"
    assert caught.value.retryable
    assert url in caught.value.message
    assert caught.value.hint


async def test_closed_connection_raises_answer_lost(peer: Peer) -> None:
    peer.body = None
    with pytest.raises(AnswerLost) as caught:
        await call(peer.url)
    assert caught.value.retryable
    assert isinstance(caught.value, PeerUnavailable)
    assert len(peer.requests) == 1


async def test_timeout_raises_answer_lost() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/mcp"
        async with McpClient("health", url, lambda: "t") as client:
            with pytest.raises(AnswerLost):
                await client.call("note", timeout_s=0.05)


@pytest.mark.parametrize(
    ("result", "value"),
    [
        ({"content": [{"type": "text", "text": "posted"}]}, "posted"),
        ({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, "a\nb"),
        ({"content": [{"type": "image", "data": "eA=="}]}, [{"type": "image", "data": "eA=="}]),
        ({"content": [], "structuredContent": None}, None),
        ({"content": [{"type": "text", "text": "x"}], "structuredContent": {"a": 1}}, {"a": 1}),
        (
            {
                "content": [],
                "structuredContent": {"result": None},
                "_meta": {"fastmcp": {"wrap_result": True}},
            },
            None,
        ),
    ],
)
def test_value_of_an_answer_without_structure_is_its_text(
    result: dict[str, Any], value: object
) -> None:
    assert tool_value(result) == value
