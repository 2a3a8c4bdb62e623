"""The boundary of ports: a token goes only to a server that has proved to belong to the fleet."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from butlers.domain.caller import CallerKind
from butlers.domain.errors import NotAuthenticated
from butlers.wire.client import McpClient
from butlers.wire.tokens import IDENTITY, FleetCredential, FleetKey, ServerIdentity
from support.in_process import InProcessButler, MakeButler

Answer = Callable[[str], Any]


class PortThief:
    """A program that listens on the port of a butler that crashed, and keeps what it is sent."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.bearers: list[str] = []
        thief = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._reply()

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", "0")))
                self._reply()

            def _reply(self) -> None:
                if (sent := self.headers.get("Authorization")) is not None:
                    thief.bearers.append(sent)
                body = json.dumps(thief.answer(self.path)).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                return

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port: int = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/mcp"


@contextmanager
def port_thief(answer: Answer) -> Iterator[PortThief]:
    thief = PortThief(answer)
    threading.Thread(target=thief.server.serve_forever, daemon=True).start()
    try:
        yield thief
    finally:
        thief.server.shutdown()
        thief.server.server_close()


def credential(key: FleetKey, audience: str = "tester") -> FleetCredential:
    return FleetCredential(key, CallerKind.OWNER, "owner", audience)


async def assert_gets_nothing(thief: PortThief, key: FleetKey) -> None:
    async with McpClient("tester", thief.url, credential(key)) as client:
        with pytest.raises(NotAuthenticated, match="is not tester of this fleet"):
            await client.call("status")
    assert thief.bearers == []


@pytest.mark.parametrize(
    "said", [{}, [], "ok", {"instance": "x", "proof": "0" * 64}, {"instance": 1, "proof": None}]
)
async def test_token_is_not_sent_to_whoever_took_the_port(key: FleetKey, said: Any) -> None:
    """Attack: listen on a crashed butler's port, and collect the owner's token from the next command."""
    with port_thief(lambda _path: said) as thief:
        await assert_gets_nothing(thief, key)


async def test_proof_of_another_port_or_butler_is_refused(
    tester: InProcessButler, key: FleetKey
) -> None:
    """Attack: pass the challenge on to a real butler that runs elsewhere, and return its proof."""
    running = tester.butler.url.replace("/mcp", "")
    with port_thief(lambda path: httpx.get(f"{running}{path}").json()) as thief:
        await assert_gets_nothing(thief, key)
    other = ServerIdentity(key, "other")
    with port_thief(lambda path: other.answer(_nonce(path), thief.port)) as thief:
        await assert_gets_nothing(thief, key)


async def test_an_earlier_proof_is_refused(key: FleetKey) -> None:
    """Attack: record a proof while the butler runs, and replay it after the crash."""
    with port_thief(lambda _path: None) as thief:
        recorded = ServerIdentity(key, "tester").answer("an earlier nonce", thief.port)
        thief.answer = lambda _path: recorded
        await assert_gets_nothing(thief, key)


async def test_token_of_one_instance_is_refused_by_the_next(
    tester: InProcessButler, make_butler: MakeButler, key: FleetKey
) -> None:
    """Attack: take the port between the proof and the token, then use the token at the restarted butler."""
    first = ServerIdentity(key, "tester")
    caught = credential(key).token(first.instance)
    async with McpClient("tester", tester.butler.url, lambda: caught) as client:
        with pytest.raises(NotAuthenticated):
            await client.call("status")
    async with McpClient("tester", tester.butler.url, credential(key)) as client:
        assert (await client.call("status"))["name"] == "tester"


async def test_client_follows_a_restarted_butler(tester: InProcessButler, key: FleetKey) -> None:
    """Not an attack: a client whose server was restarted asks for the new proof and goes on."""
    async with McpClient("tester", tester.butler.url, credential(key)) as client:
        await client.call("status")
        client._instance = "of the process before"
        assert (await client.call("status"))["name"] == "tester"


async def test_identity_reveals_no_key_and_needs_a_loopback_host(tester: InProcessButler) -> None:
    """Attack: a page in the owner's browser asks for proofs under another host name."""
    base = tester.butler.url.replace("/mcp", "")
    async with httpx.AsyncClient() as http:
        answer = await http.get(f"{base}{IDENTITY}", params={"nonce": "x" * 4000})
        assert set(answer.json()) == {"instance", "proof"}
        foreign = await http.get(f"{base}{IDENTITY}", headers={"Host": "evil.example"})
    assert foreign.status_code == 421


def _nonce(path: str) -> str:
    return httpx.URL(path).params["nonce"]
