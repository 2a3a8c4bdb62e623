"""The HTTP port of a running Switchboard under attack by senders without a secret."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from butlers.channels import source_rate
from butlers.channels.webhook.sender import sign
from butlers.config.settings import Settings
from butlers.daemon import http_limits
from butlers.db.database import Login
from butlers.db.provision import Provisioner
from butlers.wire.tokens import FleetKey
from support.in_process import InProcessButler
from support.prepared import copied, make_template
from support.tester_folder import copy_roster
from support.waiting import PATIENCE_S

SECRET = "a secret of twenty-five"
OTHER_SECRET = "another secret, of another program"
SECRETS = {"SHOP_SECRET": SECRET, "TILL_SECRET": OTHER_SECRET}
WEBHOOKS = """
[connectors.webhook.shop]
secret = "SHOP_SECRET"

[connectors.webhook.bare]
secret = "MISSING_SECRET"

[connectors.webhook.till]
secret = "TILL_SECRET"
"""
BROKEN_REFLEX = """
[[reflex]]
name = "bad-one"
pattern = 'bad (?P<x>'
reply = "bad"
"""
DEEP = {
    "lists": b"[" * 100_000 + b"]" * 100_000,
    "objects": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "just parsable": b'{"text": "x", "payload": ' + b"[" * 900 + b"]" * 900 + b"}",
}


@pytest.fixture(scope="module")
def prepared_template(admin: Login, session_key: FleetKey) -> str:
    return asyncio.run(make_template(admin, session_key))


@pytest.fixture
def key(session_key: FleetKey) -> FleetKey:
    return session_key


@pytest.fixture
async def switchboard(
    tmp_path: Path,
    home: Path,
    key: FleetKey,
    provisioner: Provisioner,
    admin: Login,
    prepared_template: str,
    database_name: str,
) -> AsyncIterator[InProcessButler]:
    directory = tmp_path / "switchboard"
    copy_roster("switchboard", directory, database_name)
    file = directory / "butler.toml"
    file.write_text(file.read_text() + WEBHOOKS)
    (directory / "skills" / "broken").mkdir(parents=True)
    (directory / "skills" / "broken" / "reflex.toml").write_text(BROKEN_REFLEX)
    async with copied(admin, prepared_template, database_name):
        tester = InProcessButler(directory, home, key, provisioner)
        butler = tester.make(settings=Settings(home, environ=SECRETS))
        await butler.start()
        yield tester
        await tester.close()


async def post(
    tester: InProcessButler, path: str, body: bytes, headers: dict[str, str]
) -> httpx.Response:
    async with httpx.AsyncClient(trust_env=False, verify=False, timeout=PATIENCE_S) as http:
        url = f"http://127.0.0.1:{tester.port}{path}"
        return await http.post(url, content=body, headers=headers)


def signed(tester: InProcessButler, body: bytes, secret: str = SECRET) -> dict[str, str]:
    timestamp = str(int(tester.butler.clock.now().timestamp()))
    return {"Butlers-Timestamp": timestamp, "Butlers-Signature": sign(secret, timestamp, body)}


def head(path: str, headers: dict[str, str]) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: 127.0.0.1"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode()


@asynccontextmanager
async def connected(
    tester: InProcessButler, sent: bytes
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", tester.port)
    try:
        writer.write(sent)
        await writer.drain()
        yield reader, writer
    finally:
        writer.close()


async def status_line(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(PATIENCE_S):
        return await reader.readline()


async def until_closed(reader: asyncio.StreamReader) -> bytes:
    """Return what the server sent before it closed the connection."""
    received = b""
    async with asyncio.timeout(PATIENCE_S):
        try:
            while data := await reader.read(65_536):
                received += data
        except ConnectionResetError:
            pass
    return received


async def is_healthy(tester: InProcessButler) -> bool:
    async with httpx.AsyncClient(trust_env=False, verify=False, timeout=PATIENCE_S) as http:
        answer = await http.get(f"http://127.0.0.1:{tester.port}/health")
    return answer.status_code == 200


# -- signatures ------------------------------------------------------------------------------------


async def test_replayed_skewed_and_borrowed_signatures_are_refused(
    switchboard: InProcessButler,
) -> None:
    """Attack: send a copy of a signed request, one of another time, or one signed for another webhook."""
    body = json.dumps({"text": "pay 10"}).encode()
    headers = signed(switchboard, body)
    first = await post(switchboard, "/webhook/shop", body, headers)
    assert first.status_code == 202
    copy = await post(switchboard, "/webhook/shop", body, headers)
    assert copy.json()["duplicate"]
    assert copy.json()["request_id"] == first.json()["request_id"]
    now = int(switchboard.butler.clock.now().timestamp())
    refused = {"shop's at till": await post(switchboard, "/webhook/till", body, headers)}
    borrowed = signed(switchboard, body, OTHER_SECRET)
    refused["till's at shop"] = await post(switchboard, "/webhook/shop", body, borrowed)
    for skew in (-600, -130, 130, 600):
        moved = {"Butlers-Timestamp": str(now + skew)}
        resigned = {**moved, "Butlers-Signature": sign(SECRET, str(now + skew), body)}
        for why, one in (("signed", resigned), ("moved", {**headers, **moved})):
            refused[f"{why} {skew}"] = await post(switchboard, "/webhook/shop", body, one)
    assert {why: answer.status_code for why, answer in refused.items()} == dict.fromkeys(
        refused, 401
    )
    assert await switchboard.count("message_inbox") == 1


async def test_duplicate_headers_do_not_mix_two_signatures(switchboard: InProcessButler) -> None:
    """Attack: two timestamps, signatures or lengths, of which one check reads the first, one the last."""
    body = json.dumps({"text": "pay 10"}).encode()
    fresh, old = signed(switchboard, body), "1000000000"
    good, old_signature = fresh["Butlers-Signature"], sign(SECRET, old, body)
    now, bad = fresh["Butlers-Timestamp"], "v1=" + "0" * 64
    attempts = {
        "fresh time over an old copy": [("T", now), ("T", old), ("S", old_signature)],
        "old time first": [("T", old), ("T", now), ("S", old_signature)],
        "bad signature first": [("T", now), ("S", bad), ("S", good)],
        "both old and bad": [("T", now), ("T", old), ("S", bad), ("S", old_signature)],
        "joined": [("T", f"{now}, {old}"), ("S", f"{old_signature}, {good}")],
    }
    names = {"T": "Butlers-Timestamp", "S": "Butlers-Signature"}
    for why, pairs in attempts.items():
        lines = [f"{names[name]}: {value}" for name, value in pairs]
        for lengths in ([len(body)], [len(body), len(body) + 1]):
            sent = [*lines, *(f"Content-Length: {length}" for length in lengths)]
            head_text = ["POST /webhook/shop HTTP/1.1", "Host: 127.0.0.1", *sent, "", ""]
            raw = "\r\n".join(head_text).encode() + body
            async with connected(switchboard, raw) as (reader, _):
                assert (await status_line(reader)).split()[1] in {b"400", b"401"}, why
    assert await switchboard.count("message_inbox") == 0


async def test_webhook_cannot_claim_to_be_the_owner(switchboard: InProcessButler) -> None:
    """Attack: a program with a webhook's secret names the owner, or a twin of it, as its sender."""
    statuses = []
    for sender in ("owner", " owner ", "OWNER", "own\u200ber", "\uff4fwner", "phone:owner"):
        body = json.dumps({"text": "/stop", "sender": sender}).encode()
        answer = await post(switchboard, "/webhook/shop", body, signed(switchboard, body))
        statuses.append(answer.status_code)
    assert statuses[:2] == [400, 400]
    rows = await switchboard.rows("SELECT sender, sender_roles, state FROM message_inbox")
    assert len(rows) == statuses.count(202)
    for row in rows:
        assert (row["sender_roles"], row["state"]) == ([], "held"), row
        assert row["sender"].startswith("shop:")


# -- bodies ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("body", DEEP.values(), ids=DEEP)
async def test_deep_json_is_rejected_as_invalid(switchboard: InProcessButler, body: bytes) -> None:
    """A sender nests JSON so deeply that parsing or storing it exceeds the recursion limit."""
    bearer = {"Authorization": f"Bearer {switchboard.owner_token}"}
    for path, headers in (("/ingest", bearer), ("/webhook/shop", signed(switchboard, body))):
        answer = await post(switchboard, path, body, headers)
        assert answer.status_code == 400, path
        assert "nested deeper" in answer.json()["error"]["message"]


async def test_unsigned_large_body_is_answered_before_it_is_read(
    switchboard: InProcessButler,
) -> None:
    """A sender without a secret announces 40 MB, to make the butler read and hash them."""
    length = {"Content-Length": str(40 * 2**20)}
    guess = signed(switchboard, b"", "guess")
    attempts: dict[str, tuple[str, dict[str, str], bytes]] = {
        "no signature": ("/webhook/shop", {}, b"401"),
        "old": ("/webhook/shop", {**guess, "Butlers-Timestamp": "1000000000"}, b"401"),
        "short signature": ("/webhook/shop", {**guess, "Butlers-Signature": "v1="}, b"401"),
        "well-formed": ("/webhook/shop", guess, b"413"),
        "unknown name": ("/webhook/nobody", guess, b"413"),
        "no token": ("/ingest", {}, b"401"),
    }
    for why, (path, headers, status) in attempts.items():
        async with connected(switchboard, head(path, {**headers, **length})) as (reader, _):
            assert (await status_line(reader)).split()[1] == status, why


async def test_body_longer_than_the_limit_without_a_length_is_rejected(
    switchboard: InProcessButler,
) -> None:
    """A sender leaves out the length and sends chunks beyond the webhook's limit."""
    headers = {**signed(switchboard, b"", "guess"), "Transfer-Encoding": "chunked"}
    chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    sent = head("/webhook/shop", headers) + chunk * 17
    async with connected(switchboard, sent) as (reader, _):
        assert (await status_line(reader)).split()[1] == b"413"


async def test_unread_body_is_cut_after_the_answer(
    switchboard: InProcessButler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sender keeps a connection open by never ending the body of a rejected request."""
    monkeypatch.setattr(http_limits, "LINGER_S", 0.05)
    sent = head("/webhook/shop", {"Content-Length": "1000000"})
    async with connected(switchboard, sent) as (reader, writer):
        dripping = asyncio.create_task(drip(writer))
        assert (await until_closed(reader)).startswith(b"HTTP/1.1 401")
        dripping.cancel()


@pytest.mark.parametrize("path", ["/webhook/shop", "/mcp"])
async def test_dripped_body_is_cut(
    switchboard: InProcessButler, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """A sender keeps a request open for ever by sending its body byte by byte."""
    monkeypatch.setattr(http_limits, "RECEIVE_S", 0.2)
    monkeypatch.setattr(http_limits, "LINGER_S", 0.2)
    headers = {**signed(switchboard, b"", "guess"), "Content-Length": "1000000"}
    async with connected(switchboard, head(path, headers)) as (reader, writer):
        dripping = asyncio.create_task(drip(writer))
        await until_closed(reader)
        dripping.cancel()
    assert await is_healthy(switchboard)


async def drip(writer: asyncio.StreamWriter) -> None:
    while not writer.is_closing():
        writer.write(b" ")
        await asyncio.sleep(0.01)


# -- connections -----------------------------------------------------------------------------------


async def test_half_sent_headers_are_cut(
    switchboard: InProcessButler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sender opens connections and never ends the headers, or sends nothing at all."""
    monkeypatch.setattr(http_limits, "RECEIVE_S", 0.1)
    for sent in (b"", b"GET /health HTTP/1.1\r\nHost: 127"):
        async with connected(switchboard, sent) as (reader, _):
            assert await until_closed(reader) == b""


async def test_endless_headers_are_rejected(switchboard: InProcessButler) -> None:
    """A sender fills memory with headers that do not end."""
    sent = b"GET /health HTTP/1.1\r\n" + b"X-A: b\r\n" * 20_000
    async with connected(switchboard, sent) as (reader, _):
        assert (await status_line(reader)).split()[1] == b"400"


async def test_half_open_connections_do_not_stop_health(
    switchboard: InProcessButler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sender holds 200 connections with half-sent requests, more than the butler keeps."""
    monkeypatch.setattr(http_limits, "MAX_CONNECTIONS", 50)
    async with AsyncExitStack() as stack:
        half = b"POST /webhook/shop HTTP/1.1\r\nHost: 127"
        readers = [
            (await stack.enter_async_context(connected(switchboard, half)))[0] for _ in range(200)
        ]
        assert await is_healthy(switchboard)
        for reader in readers[:140]:
            assert await until_closed(reader) == b""
        assert await is_healthy(switchboard)


# -- answers ---------------------------------------------------------------------------------------


async def test_answers_do_not_tell_which_webhooks_exist(switchboard: InProcessButler) -> None:
    """A sender compares answers to find the names of webhooks: known, without a secret, unknown."""
    body = json.dumps({"text": "hello"}).encode()
    guess = signed(switchboard, body, "guess")
    attempts: dict[str, tuple[bytes, dict[str, str]]] = {
        "another secret": (body, guess),
        "no signature": (body, {}),
        "too large": (b"x" * (2**20 + 1), guess),
        "not JSON": (b"{", guess),
    }
    for why, (content, headers) in attempts.items():
        answers: list[tuple[int, Any, list[str]]] = []
        for name in ("shop", "bare", "nobody"):
            answer = await post(switchboard, f"/webhook/{name}", content, headers)
            answers.append((answer.status_code, answer.json(), sorted(answer.headers)))
        assert answers[0] == answers[1] == answers[2], why
    assert await switchboard.count("message_inbox") == 0


async def test_unknown_webhook_waits_for_the_body_like_a_known_one(
    switchboard: InProcessButler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sender holds the body back, to see whether a name is rejected without it."""
    monkeypatch.setattr(http_limits, "RECEIVE_S", 0.2)
    headers = {**signed(switchboard, b"", "guess"), "Content-Length": "10"}
    for name in ("shop", "nobody"):
        async with connected(switchboard, head(f"/webhook/{name}", headers)) as (reader, _):
            assert await until_closed(reader) == b"", name


async def test_health_shows_no_absolute_path(switchboard: InProcessButler, tmp_path: Path) -> None:
    """A program without a token reads the user's name and the layout of the disk from /health."""
    async with httpx.AsyncClient(trust_env=False, verify=False, timeout=PATIENCE_S) as http:
        answer = await http.get(f"http://127.0.0.1:{switchboard.port}/health")
    found = answer.json()["diagnostics"]
    assert [one["file"] for one in found] == ["skills/broken/reflex.toml"]
    for folder in (tmp_path, switchboard.home):
        assert str(folder) not in answer.text


async def test_one_source_cannot_make_endless_requests(
    switchboard: InProcessButler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attack: keep the port busy with requests that fail their check, faster than they are answered."""
    burst = source_rate.BURST
    monkeypatch.setattr(source_rate, "PER_S", 0.0)
    codes = [
        (await post(switchboard, "/webhook/shop", b"x", {})).status_code for _ in range(burst + 1)
    ]
    assert codes == [401] * burst + [429]
