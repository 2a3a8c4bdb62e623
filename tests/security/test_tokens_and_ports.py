"""The port of a running butler under attack by programs without a token, or with another one's."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from butlers.domain.caller import CallerKind
from butlers.domain.clock import uuid7
from butlers.domain.session import SessionRequest
from butlers.wire.tokens import FleetKey
from support.in_process import InProcessButler, call_body
from support.messages import envelope
from support.waiting import PATIENCE_S

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "tests", "version": "1"},
    },
}
HUGE = 60 * 2**20


def _part(value: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def _web_token(algorithm: str, key: bytes | None) -> str:
    claims = {
        "kind": "owner",
        "name": "owner",
        "sub": "owner",
        "aud": "tester",
        "exp": 4_000_000_000,
    }
    signed = f"{_part({'alg': algorithm, 'typ': 'JWT'})}.{_part(claims)}"
    mac = b"" if key is None else hmac.digest(key, signed.encode(), hashlib.sha256)
    return f"{signed}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"


@asynccontextmanager
async def browser(tester: InProcessButler) -> AsyncIterator[httpx.AsyncClient]:
    base = f"http://127.0.0.1:{tester.port}"
    async with httpx.AsyncClient(
        base_url=base, trust_env=False, verify=False, timeout=PATIENCE_S
    ) as http:
        yield http


async def test_no_foreign_forged_expired_or_unsigned_token_is_accepted(
    tester: InProcessButler,
) -> None:
    """Attack: call a tool without a token, and with every kind of token that a program can make up."""
    good = tester.owner_token
    prefix, claims, mac = good.split(".")
    forged = {
        "none": "",
        "no scheme": good,
        "alg none": f"Bearer {_web_token('none', None)}",
        "alg None": f"Bearer {_web_token('None', None)}",
        "signed with nothing": f"Bearer {_web_token('HS256', b'')}",
        "signed with a guess": f"Bearer {_web_token('HS256', b'secret')}",
        "without a signature": f"Bearer {prefix}.{claims}.",
        "without a mac": f"Bearer {prefix}.{claims}",
        "our prefix and alg none": f"Bearer {prefix}.{_part({'alg': 'none'})}.{claims}",
        "claims of its own": f"Bearer {prefix}.{_part({'k': 'owner', 'n': 'owner'})}.{mac}",
        "of another fleet": "Bearer "
        + FleetKey(b"x" * 32).mint(CallerKind.OWNER, "owner", "tester"),
        "expired": f"Bearer {tester.token(CallerKind.OWNER, lifetime_s=-5)}",
        "for another butler": f"Bearer {tester.token(CallerKind.OWNER, audience='health')}",
    }
    async with browser(tester) as http:
        for why, header in forged.items():
            for path in ("/mcp", "/messages/"):
                answer = await http.post(
                    path, json=call_body("quick", {}), headers={"Authorization": header}
                )
                assert answer.status_code == 401, (why, path)
        doubled = [("Authorization", f"Bearer {_web_token('none', None)}")]
        doubled.append(("Authorization", f"Bearer {good}"))
        answer = await http.post("/mcp", json=call_body("quick", {}), headers=doubled)
        assert answer.status_code == 401


async def test_token_of_a_session_opens_nothing_but_its_tools(
    switchboard: InProcessButler,
) -> None:
    """Attack: a session's token at /ingest, with the owner's protocol session, and after its end."""
    accept = {"Accept": "application/json, text/event-stream"}
    async with browser(switchboard) as http:
        owner = {**accept, "Authorization": f"Bearer {switchboard.owner_token}"}
        opened = await http.post("/mcp", json=INITIALIZE, headers=owner)
        asked = SessionRequest(uuid7(), "test", "test", request_id=uuid7())
        with switchboard.butler.guard.admit(asked) as token:
            mine = {**accept, "Authorization": f"Bearer {token}"}
            ingested = await http.post("/ingest", json=envelope(), headers=mine)
            assert ingested.status_code in {401, 403}
            stolen = {
                **mine,
                "Mcp-Session-Id": opened.headers["mcp-session-id"],
                "Mcp-Protocol-Version": "2025-11-25",
            }
            for method in ("POST", "GET", "DELETE"):
                body = call_body("trigger", {"prompt": "x"}) if method == "POST" else None
                answer = await http.request(method, "/mcp", json=body, headers=stolen)
                assert answer.status_code == 404, method
        for path, body in (("/mcp", call_body("status", {})), ("/ingest", envelope())):
            late = await http.post(path, json=body, headers=mine)
            assert late.status_code == 401, path
    assert await switchboard.count("message_inbox") == 0
    assert await switchboard.count("sessions") == 0


async def test_a_page_in_the_browser_cannot_reach_the_port(tester: InProcessButler) -> None:
    """Attack: a page rebinds its name to the loopback address, or hides its origin."""
    token = {"Authorization": f"Bearer {tester.owner_token}"}
    hosts = [
        "evil.example",
        f"evil.example:{tester.port}",
        "127.0.0.1@evil.example",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "0.0.0.0",
        "",
    ]
    origins = ["http://evil.example", "null", "file://", "http://127.0.0.1.evil.example"]
    async with browser(tester) as http:
        for host in hosts:
            answer = await http.post(
                "/mcp", json=call_body("quick", {}), headers={**token, "Host": host}
            )
            assert answer.status_code in {400, 421}, host
        for origin in origins:
            answer = await http.post(
                "/mcp", json=call_body("quick", {}), headers={**token, "Origin": origin}
            )
            assert answer.status_code == 403, origin


async def test_malformed_requests_do_nothing_and_break_nothing(tester: InProcessButler) -> None:
    """Attack: bodies that are no JSON-RPC, with NUL, NaN and bad UTF-8, and 60 MB of them."""
    call = call_body("write", {"text": "planted"})
    written = json.dumps(call).encode()
    bodies = {
        "nothing": b"",
        "half": written[:-2],
        "no object": b'"text"',
        "null": b"null",
        "empty batch": b"[]",
        "batch": b"[" + written + b"]",
        "other version": json.dumps({**call, "jsonrpc": "1.0"}).encode(),
        "no method": json.dumps({**call, "method": 7}).encode(),
        "NUL outside": b"\x00" + written,
        "NUL in the text": written.replace(b"planted", b"plan\x00ted"),
        "escaped NUL": written.replace(b"planted", b"plan\\u0000ted"),
        "lone surrogate": written.replace(b"planted", b"plan\\ud800ted"),
        "bad UTF-8": written.replace(b"planted", b"plan\xff\xfeted"),
        "NaN": written.replace(b'"planted"', b"NaN"),
        "Infinity": written.replace(b'"planted"', b"-Infinity"),
        "deep": b'{"jsonrpc":' * 50_000,
        "long number": b'{"jsonrpc": "2.0", "id": ' + b"9" * 10_000 + b"}",
    }
    headers = {
        "Authorization": f"Bearer {tester.owner_token}",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call",
        "Mcp-Name": "write",
    }
    async with browser(tester) as http:
        for why, body in bodies.items():
            answer = await http.post("/mcp", content=body, headers=headers)
            assert answer.status_code < 500, why
            failed = answer.status_code >= 400 or "error" in answer.text
            assert failed, (why, answer.text)
        for path in ("/mcp", "/messages/"):
            assert await _status_of_huge(tester, path) in {b"400", b"413"}, path
        assert (await http.get("/health")).json()["name"] == "tester"
    assert await tester.count("entries") == 0
    async with tester.owner() as owner:
        await owner.call("write", {"text": "still here"})


async def _status_of_huge(tester: InProcessButler, path: str) -> bytes:
    """Announce 60 MB and send none of them. Return the status of the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", tester.port)
    try:
        lines = [
            f"POST {path} HTTP/1.1",
            f"Host: 127.0.0.1:{tester.port}",
            f"Authorization: Bearer {tester.owner_token}",
            "Content-Type: application/json",
            f"Content-Length: {HUGE}",
        ]
        writer.write("\r\n".join([*lines, "", ""]).encode())
        async with asyncio.timeout(PATIENCE_S):
            return (await reader.readline()).split()[1]
    finally:
        writer.close()
