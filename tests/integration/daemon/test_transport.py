"""One URL for every client; checks of token, Host and Origin for every request."""

from __future__ import annotations

import asyncio
import secrets
import socket

import httpx
import pytest

from butlers.domain.caller import CallerKind
from butlers.domain.clock import uuid7
from butlers.domain.errors import NotAuthenticated
from butlers.domain.session import SessionRequest
from support import mcp_clients as clients
from support.in_process import InProcessButler, call_body
from support.mcp_clients import Connect

ENDPOINTS = [("GET", "/mcp"), ("POST", "/mcp"), ("DELETE", "/mcp"), ("POST", "/messages/")]


async def ask(tester: InProcessButler, method: str, path: str, **headers: str) -> httpx.Response:
    async with httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{tester.port}", trust_env=False, verify=False
    ) as http:
        body = call_body("quick", {}) if method == "POST" else None
        return await http.request(method, path, json=body, headers=headers)


@pytest.mark.parametrize("connect", clients.ALL, ids=lambda connect: connect.__name__)
async def test_every_client_lists_and_calls_tools_at_one_url(
    tester: InProcessButler, connect: Connect
) -> None:
    assert tester.butler.url == f"http://127.0.0.1:{tester.port}/mcp"

    async with connect(tester.butler.url, tester.owner_token) as client:
        assert {"status", "sessions_list", "quick", "write"} <= await client.names()
        assert await client.call("quick", {"text": "grüezi"}) == {
            "text": "grüezi",
            "caller": "owner",
            "name": "owner",
        }


@pytest.mark.scenario("S001-02")
@pytest.mark.parametrize("connect", clients.ALL, ids=lambda connect: connect.__name__)
async def test_session_sees_all_its_tools_and_is_identified(
    tester: InProcessButler, connect: Connect
) -> None:
    """It has the core tools and those of the module, and is identified by its connection."""
    session = SessionRequest(uuid7(), "test", "test", request_id=uuid7())
    with tester.butler.guard.admit(session) as token:
        async with connect(tester.butler.url, token) as client:
            assert {"status", "notify", "remind", "state_set", "quick", "write"} <= (
                await client.names()
            )
            assert (await client.call("quick", {}))["caller"] == "session"
            await client.call("write", {"text": "mine"})
    rows = await tester.rows("SELECT tool, session_id, request_id FROM tool_calls ORDER BY id")
    assert [row["tool"] for row in rows] == ["quick", "write"]
    assert {row["session_id"] for row in rows} == {session.session_id}
    assert {row["request_id"] for row in rows} == {session.request_id}


async def test_all_clients_work_concurrently(tester: InProcessButler) -> None:
    url, token = tester.butler.url, tester.owner_token
    async with (
        clients.ours(url, token) as one,
        clients.fastmcp_2025(url, token) as two,
        clients.fastmcp_sse(url, token) as three,
        clients.mcp_streamable(url, token) as four,
        clients.mcp_sse(url, token) as five,
    ):
        for number, client in enumerate((one, two, three, four, five)):
            assert (await client.call("quick", {"text": str(number)}))["text"] == str(number)


@pytest.mark.parametrize("connect", clients.ALL, ids=lambda connect: connect.__name__)
async def test_call_longer_than_the_ping_interval_is_answered(
    tester: InProcessButler, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After this interval the protocol library answers with a stream, which every client must read."""
    monkeypatch.setattr("mcp.server._streamable_http_modern._SSE_PING_INTERVAL", 0.01)
    async with connect(tester.butler.url, tester.owner_token) as client:
        asked = asyncio.ensure_future(client.call("slow", {"label": "long"}))
        await tester.until_running("long")
        await asyncio.sleep(0.05)  # several times the interval
        tester.open_gate()
        assert await asked == {"label": "long"}


@pytest.mark.parametrize(("method", "path"), ENDPOINTS)
async def test_request_without_a_token_is_rejected(
    tester: InProcessButler, method: str, path: str
) -> None:
    assert (await ask(tester, method, path)).status_code == 401


@pytest.mark.parametrize(("method", "path"), ENDPOINTS)
async def test_request_with_a_wrong_token_is_rejected(
    tester: InProcessButler, method: str, path: str
) -> None:
    good = tester.owner_token
    wrong = {
        "made up": "bs." + secrets.token_urlsafe(32),
        "not a token": "b1..",
        "another mac": good[:-4] + ("AAAA" if not good.endswith("AAAA") else "BBBB"),
        "another body": good.replace("b1.", "b1.AAAA", 1),
        "expired": tester.token(CallerKind.OWNER, lifetime_s=-5),
        "for another butler": tester.token(CallerKind.OWNER, audience="health"),
    }
    for why, token in wrong.items():
        answer = await ask(tester, method, path, Authorization=f"Bearer {token}")
        assert answer.status_code == 401, why
        assert "quick" not in answer.text


async def test_token_outside_the_authorization_header_is_ignored(tester: InProcessButler) -> None:
    token = tester.owner_token
    assert (await ask(tester, "POST", f"/mcp?token={token}")).status_code == 401
    assert (await ask(tester, "POST", "/mcp", Authorization=f"Basic {token}")).status_code == 401
    assert (await ask(tester, "POST", "/mcp", Authorization="Bearer")).status_code == 401
    assert (await ask(tester, "POST", "/mcp", Cookie=f"token={token}")).status_code == 401


@pytest.mark.parametrize("path", ["/mcp", "/health"])
@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "192.0.2.7"]
)
async def test_foreign_host_header_is_rejected(
    tester: InProcessButler, path: str, host: str
) -> None:
    headers = {"Host": host, "Authorization": f"Bearer {tester.owner_token}"}
    assert (await ask(tester, "GET", path, **headers)).status_code == 421
    if path == "/mcp":
        assert (await ask(tester, "POST", path, **headers)).status_code == 421
        assert (await ask(tester, "POST", "/messages/", **headers)).status_code == 421


@pytest.mark.parametrize("origin", ["http://evil.example", "https://127.0.0.1.evil.example"])
async def test_foreign_origin_header_is_rejected(tester: InProcessButler, origin: str) -> None:
    headers = {"Origin": origin, "Authorization": f"Bearer {tester.owner_token}"}
    for method, path in ENDPOINTS:
        assert (await ask(tester, method, path, **headers)).status_code == 403


async def test_health_needs_no_token(tester: InProcessButler) -> None:
    answer = await ask(tester, "GET", "/health")
    assert answer.status_code == 200
    assert answer.json()["name"] == "tester"


async def test_only_loopback_is_bound(tester: InProcessButler) -> None:
    with socket.create_connection(("127.0.0.1", tester.port)):
        pass
    for other in ("127.0.0.2", *_addresses_of_this_machine()):
        with pytest.raises(OSError, match="refused"):
            socket.create_connection((other, tester.port), timeout=5).close()


async def test_protocol_session_id_is_bound_to_its_token(tester: InProcessButler) -> None:
    """A peer cannot use a protocol session of the owner, even if it knows the id."""
    opened = await ask_initialize(tester, tester.owner_token)
    stolen = {
        "Mcp-Session-Id": opened.headers["mcp-session-id"],
        "Mcp-Protocol-Version": "2025-11-25",
        "Accept": "application/json, text/event-stream",
        "Authorization": f"Bearer {tester.token(CallerKind.PEER, 'general')}",
    }
    assert (await ask(tester, "POST", "/mcp", **stolen)).status_code == 404


async def test_our_client_reports_a_rejected_token(tester: InProcessButler) -> None:
    async with tester.client(tester.token(CallerKind.PEER, "general", audience="other")) as client:
        with pytest.raises(NotAuthenticated):
            await client.call("quick")


async def ask_initialize(tester: InProcessButler, token: str) -> httpx.Response:
    body = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "tests", "version": "1"},
        },
    }
    async with httpx.AsyncClient(trust_env=False, verify=False) as http:
        return await http.post(
            tester.butler.url,
            json=body,
            headers={
                "Authorization": f"Bearer {token}",
                "Accept": "application/json, text/event-stream",
            },
        )


def _addresses_of_this_machine() -> set[str]:
    """Return the machine's address in the network, or None."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.255", 9))  # sends nothing
        except OSError:
            return set()
        return {str(probe.getsockname()[0])} - {"127.0.0.1", "0.0.0.0"}
