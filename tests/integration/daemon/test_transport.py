"""One URL for every client; a token, a Host and an Origin for every request."""

from __future__ import annotations

import asyncio
import secrets
import socket

import httpx
import pytest

from butlers.domain.caller import CallerKind
from butlers.domain.errors import NotAuthenticated
from butlers.domain.ids import uuid7
from butlers.domain.session import SessionRequest
from support import mcp_clients as clients
from support.in_process import House, call_body
from support.mcp_clients import Connect

ENDPOINTS = [("GET", "/mcp"), ("POST", "/mcp"), ("DELETE", "/mcp"), ("POST", "/messages/")]


async def ask(house: House, method: str, path: str, **headers: str) -> httpx.Response:
    async with httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{house.port}", trust_env=False, verify=False
    ) as http:
        body = call_body("quick", {}) if method == "POST" else None
        return await http.request(method, path, json=body, headers=headers)


@pytest.mark.parametrize("connect", clients.ALL, ids=lambda connect: connect.__name__)
async def test_every_client_lists_and_calls_at_the_same_url(house: House, connect: Connect) -> None:
    assert house.butler.url == f"http://127.0.0.1:{house.port}/mcp"

    async with connect(house.butler.url, house.owner_token) as client:
        assert {"status", "sessions_list", "quick", "write"} <= await client.names()
        assert await client.call("quick", {"text": "grüezi"}) == {
            "text": "grüezi",
            "caller": "owner",
            "name": "owner",
        }


@pytest.mark.scenario("S001-02")
@pytest.mark.parametrize("connect", clients.ALL, ids=lambda connect: connect.__name__)
async def test_a_session_has_the_whole_surface_and_is_bound_to_itself(
    house: House, connect: Connect
) -> None:
    """Core tools and those of the butler's own module; and who calls is known from the connection."""
    session = SessionRequest(uuid7(), "test", "test", request_id=uuid7())
    with house.butler.guard.admit(session) as token:
        async with connect(house.butler.url, token) as client:
            assert {"status", "notify", "remind", "state_set", "quick", "write"} <= (
                await client.names()
            )
            assert (await client.call("quick", {}))["caller"] == "session"
            await client.call("write", {"text": "mine"})
    rows = await house.rows("SELECT tool, session_id, request_id FROM tool_calls ORDER BY id")
    assert [row["tool"] for row in rows] == ["quick", "write"]
    assert {row["session_id"] for row in rows} == {session.session_id}
    assert {row["request_id"] for row in rows} == {session.request_id}


async def test_all_clients_at_once(house: House) -> None:
    url, token = house.butler.url, house.owner_token
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
async def test_a_call_that_outlasts_the_servers_patience_is_answered(
    house: House, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After it the protocol library turns the answer into a stream; every client must read that too."""
    monkeypatch.setattr("mcp.server._streamable_http_modern._SSE_PING_INTERVAL", 0.01)
    async with connect(house.butler.url, house.owner_token) as client:
        asked = asyncio.ensure_future(client.call("slow", {"label": "long"}))
        await house.until_running("long")
        await asyncio.sleep(
            0.05
        )  # several times the patience; the answer is right however long it is
        house.open_gate()
        assert await asked == {"label": "long"}


@pytest.mark.parametrize(("method", "path"), ENDPOINTS)
async def test_no_request_without_a_token(house: House, method: str, path: str) -> None:
    assert (await ask(house, method, path)).status_code == 401


@pytest.mark.parametrize(("method", "path"), ENDPOINTS)
async def test_no_request_with_a_wrong_token(house: House, method: str, path: str) -> None:
    good = house.owner_token
    wrong = {
        "made up": "bs." + secrets.token_urlsafe(32),
        "not a token": "b1..",
        "another mac": good[:-4] + ("AAAA" if not good.endswith("AAAA") else "BBBB"),
        "another body": good.replace("b1.", "b1.AAAA", 1),
        "expired": house.token(CallerKind.OWNER, lifetime_s=-5),
        "for another butler": house.token(CallerKind.OWNER, audience="health"),
    }
    for why, token in wrong.items():
        answer = await ask(house, method, path, Authorization=f"Bearer {token}")
        assert answer.status_code == 401, why
        assert "quick" not in answer.text


async def test_a_token_in_another_place_does_not_count(house: House) -> None:
    token = house.owner_token
    assert (await ask(house, "POST", f"/mcp?token={token}")).status_code == 401
    assert (await ask(house, "POST", "/mcp", Authorization=f"Basic {token}")).status_code == 401
    assert (await ask(house, "POST", "/mcp", Authorization="Bearer")).status_code == 401
    assert (await ask(house, "POST", "/mcp", Cookie=f"token={token}")).status_code == 401


@pytest.mark.parametrize("path", ["/mcp", "/health"])
@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "192.0.2.7"]
)
async def test_a_foreign_host_is_misdirected(house: House, path: str, host: str) -> None:
    headers = {"Host": host, "Authorization": f"Bearer {house.owner_token}"}
    assert (await ask(house, "GET", path, **headers)).status_code == 421
    if path == "/mcp":
        assert (await ask(house, "POST", path, **headers)).status_code == 421
        assert (await ask(house, "POST", "/messages/", **headers)).status_code == 421


@pytest.mark.parametrize("origin", ["http://evil.example", "https://127.0.0.1.evil.example"])
async def test_a_foreign_origin_is_refused(house: House, origin: str) -> None:
    headers = {"Origin": origin, "Authorization": f"Bearer {house.owner_token}"}
    for method, path in ENDPOINTS:
        assert (await ask(house, method, path, **headers)).status_code == 403


async def test_health_needs_no_token(house: House) -> None:
    answer = await ask(house, "GET", "/health")
    assert answer.status_code == 200
    assert answer.json()["name"] == "tester"


async def test_only_loopback_is_bound(house: House) -> None:
    with socket.create_connection(("127.0.0.1", house.port)):
        pass
    for other in ("127.0.0.2", *_addresses_of_this_machine()):
        with pytest.raises(OSError, match="refused"):
            socket.create_connection((other, house.port), timeout=5).close()


async def test_a_session_id_of_the_protocol_belongs_to_its_token(house: House) -> None:
    """A 2025 session that the owner opened is not there for a peer who learned its id."""
    opened = await ask_initialize(house, house.owner_token)
    stolen = {
        "Mcp-Session-Id": opened.headers["mcp-session-id"],
        "Mcp-Protocol-Version": "2025-11-25",
        "Accept": "application/json, text/event-stream",
        "Authorization": f"Bearer {house.token(CallerKind.PEER, 'general')}",
    }
    assert (await ask(house, "POST", "/mcp", **stolen)).status_code == 404


async def test_our_client_names_a_refused_token(house: House) -> None:
    async with house.client(house.token(CallerKind.PEER, "general", audience="other")) as client:
        with pytest.raises(NotAuthenticated):
            await client.call("quick")


async def ask_initialize(house: House, token: str) -> httpx.Response:
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
            house.butler.url,
            json=body,
            headers={
                "Authorization": f"Bearer {token}",
                "Accept": "application/json, text/event-stream",
            },
        )


def _addresses_of_this_machine() -> set[str]:
    """What the machine is called from outside, where it has an outside."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.255", 9))  # sends nothing
        except OSError:
            return set()
        return {str(probe.getsockname()[0])} - {"127.0.0.1", "0.0.0.0"}
