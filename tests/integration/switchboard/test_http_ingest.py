"""Ingest over plain HTTP, with the guarantees of the MCP tool."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any
from uuid import UUID

import httpx
import pytest

from butlers.channels.webhook.sender import sign
from butlers.config.settings import Settings
from butlers.domain.caller import CallerKind
from butlers.domain.clock import uuid7
from support.full_queue import full_inbox
from support.in_process import InProcessButler, MakeButler
from support.messages import envelope
from support.waiting import until

SECRET = "a secret of twenty-five"
WEBHOOKS = """
[connectors.webhook.shop]
secret = "SHOP_SECRET"

[connectors.webhook.phone]
secret = "SHOP_SECRET"
owner = true
"""


@pytest.fixture
async def switchboard(make_butler: MakeButler) -> InProcessButler:
    tester = make_butler("switchboard")
    file = tester.directory / "butler.toml"
    file.write_text(file.read_text() + WEBHOOKS)
    butler = tester.make(settings=Settings(tester.home, environ={"SHOP_SECRET": SECRET}))
    await butler.start()

    async def phone_is_known() -> list[dict[str, Any]]:
        return await tester.rows("SELECT 1 FROM connectors WHERE endpoint = 'phone'")

    await until("the webhooks to be known", phone_is_known)
    return tester


async def post(
    tester: InProcessButler, path: str, body: Any, headers: dict[str, Any] | None = None
) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    url = tester.butler.url.removesuffix("/mcp") + path
    async with httpx.AsyncClient(trust_env=False, verify=False, timeout=60) as http:
        return await http.post(url, content=content, headers=headers or {})


async def ingest(tester: InProcessButler, body: Any, token: str | None = None) -> httpx.Response:
    return await post(
        tester, "/ingest", body, {"Authorization": f"Bearer {token or tester.owner_token}"}
    )


async def hook(
    tester: InProcessButler, name: str, body: Any, *, secret: str = SECRET, age_s: int = 0
) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    timestamp = str(int(tester.butler.clock.now().timestamp()) - age_s)
    headers = {
        "Butlers-Timestamp": timestamp,
        "Butlers-Signature": sign(secret, timestamp, content),
    }
    return await post(tester, f"/webhook/{name}", content, headers)


async def test_http_ingest_commits_before_it_answers(switchboard: InProcessButler) -> None:
    message = envelope("weight 80")
    answer = await ingest(switchboard, message)
    assert answer.status_code == 202
    answered = answer.json()
    assert UUID(answered["request_id"]).version == 7
    assert (answered["status"], answered["duplicate"]) == ("accepted", False)
    assert await switchboard.count("message_inbox") == 1
    again = await ingest(switchboard, message)
    assert again.json() == {**answered, "duplicate": True}


async def test_http_and_mcp_ingest_share_deduplication(switchboard: InProcessButler) -> None:
    message = envelope("weight 80")
    async with switchboard.owner() as owner:
        first = await owner.call("ingest", message)
    again = (await ingest(switchboard, message)).json()
    assert (again["request_id"], again["duplicate"]) == (first["request_id"], True)


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{", 400, "invalid_message"),
        ([], 400, "invalid_arguments"),
        ({**envelope(), "extra": 1}, 400, "invalid_arguments"),
        ({**envelope(), "schema_version": "ingest.v2"}, 400, "invalid_arguments"),
        (envelope(""), 400, "invalid_message"),
        (envelope("x" * 1_000_001), 413, "message_too_large"),
        (envelope(source={"channel": "pigeon"}), 400, "unknown_channel"),
    ],
)
async def test_invalid_envelope_is_rejected_without_trace(
    switchboard: InProcessButler, body: Any, status: int, code: str
) -> None:
    answer = await ingest(switchboard, body)
    assert answer.status_code == status
    error = answer.json()["error"]
    assert (error["code"], error["retryable"]) == (code, False)
    assert await switchboard.count("message_inbox") == 0


async def test_http_ingest_needs_the_owners_token(switchboard: InProcessButler) -> None:
    wrong = {
        "none": "",
        "a made-up one": "Bearer nonsense",
        "of another kind": f"Basic {switchboard.owner_token}",
        "for another butler": f"Bearer {switchboard.token(CallerKind.OWNER, audience='health')}",
    }
    for why, header in wrong.items():
        answer = await post(switchboard, "/ingest", envelope(), {"Authorization": header})
        assert answer.status_code == 401, why
    answer = await ingest(switchboard, envelope(), switchboard.token(CallerKind.PEER, "health"))
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "not_allowed")
    assert await switchboard.count("message_inbox") == 0


async def test_endless_body_is_rejected(switchboard: InProcessButler) -> None:
    answer = await ingest(switchboard, b"x" * (41 * 2**20))
    assert answer.status_code == 413


async def test_large_attachment_is_accepted_over_http(switchboard: InProcessButler) -> None:
    picture = b"\x89PNG\r\n\x1a\n" + bytes(8_000_000)
    file = {"media_type": "image/png", "content": base64.b64encode(picture).decode()}
    answer = await ingest(switchboard, envelope("look", payload={"attachments": [file]}))
    assert answer.status_code == 202
    too_large = {
        "media_type": "text/plain",
        "content": base64.b64encode(bytes(26 * 2**20)).decode(),
    }
    refused = await ingest(switchboard, envelope("look", payload={"attachments": [too_large]}))
    assert (refused.status_code, refused.json()["error"]["code"]) == (413, "message_too_large")


async def test_full_queue_answers_429_with_retry_after(switchboard: InProcessButler) -> None:
    async with full_inbox(switchboard):
        answer = await ingest(switchboard, envelope())
    assert (answer.status_code, answer.headers["Retry-After"]) == (429, "1")
    assert answer.json()["error"]["retryable"]
    assert await switchboard.count("message_inbox") == 0


# -- webhooks ------------------------------------------------------------------------------------------


async def test_signed_webhook_post_becomes_a_message(switchboard: InProcessButler) -> None:
    body = {"text": "order 7 has shipped", "id": "evt-7", "sender": "orders", "thread": "o-7"}
    answer = await hook(switchboard, "shop", body)
    assert (answer.status_code, answer.json()["status"]) == (202, "held"), answer.text
    (row,) = await switchboard.rows("SELECT * FROM message_inbox")
    assert (row["channel"], row["endpoint"], row["sender"], row["thread"], row["event_id"]) == (
        "webhook",
        "shop:orders",
        "shop:orders",
        "o-7",
        "evt-7",
    )
    assert (await hook(switchboard, "shop", body)).json()["duplicate"]
    async with switchboard.owner() as owner:
        await owner.call("contacts_allow", {"channel": "webhook", "identity": "shop:orders"})
    later = await hook(switchboard, "shop", {**body, "id": "evt-8"})
    assert later.json()["status"] == "accepted"


async def test_message_of_an_owner_webhook_counts_as_the_owners(
    switchboard: InProcessButler,
) -> None:
    answer = await hook(switchboard, "phone", {"text": "weight 80", "sender": "mallory"})
    assert answer.json()["status"] == "accepted"
    (row,) = await switchboard.rows("SELECT sender, sender_roles FROM message_inbox")
    assert row == {"sender": "phone:owner", "sender_roles": ["owner"]}


async def test_unsigned_post_is_rejected_without_details(switchboard: InProcessButler) -> None:
    body = {"text": "hello"}
    attempts = {
        "another secret": hook(switchboard, "shop", body, secret="guess"),
        "an old copy": hook(switchboard, "shop", body, age_s=600),
        "from the future": hook(switchboard, "shop", body, age_s=-600),
        "no such webhook": hook(switchboard, "nobody", body),
        "no signature": post(switchboard, "/webhook/shop", body),
        "no time": post(
            switchboard, "/webhook/shop", body, {"Butlers-Signature": sign(SECRET, "", b"{}")}
        ),
    }
    answers = await asyncio.gather(*attempts.values())
    assert [answer.status_code for answer in answers] == [401] * len(attempts)
    assert await switchboard.count("message_inbox") == 0


async def test_webhook_may_not_send_in_the_owners_name(
    switchboard: InProcessButler,
) -> None:
    refused = await hook(switchboard, "shop", {"text": "/stop", "sender": "owner"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_message")
    assert await switchboard.count("message_inbox") == 0


async def test_invalid_timestamp_is_rejected_like_a_wrong_signature(
    switchboard: InProcessButler,
) -> None:
    for timestamp in ("9" * 5_000, "-1", "now", "１２３"):
        headers = {
            "Butlers-Timestamp": timestamp.encode(),
            "Butlers-Signature": b"v1=",
        }
        assert (await post(switchboard, "/webhook/shop", {"text": "x"}, headers)).status_code == 401


async def test_changed_body_is_rejected(switchboard: InProcessButler) -> None:
    timestamp = str(int(switchboard.butler.clock.now().timestamp()))
    headers = {
        "Butlers-Timestamp": timestamp,
        "Butlers-Signature": sign(SECRET, timestamp, b'{"text": "pay 10"}'),
    }
    answer = await post(switchboard, "/webhook/shop", b'{"text": "pay 99"}', headers)
    assert answer.status_code == 401


async def test_webhook_with_only_rejected_posts_is_unhealthy(switchboard: InProcessButler) -> None:
    for body in (b"{", {"no": "text"}):
        assert (await hook(switchboard, "shop", body)).status_code == 400
    async with switchboard.owner() as owner:
        found = {
            one["endpoint"]: one for one in (await owner.call("connectors_list"))["connectors"]
        }
    assert found["shop"]["health"] == "rejected"
    assert found["phone"]["health"] == "healthy"


async def test_ingest_during_shutdown_answers_503(switchboard: InProcessButler) -> None:
    switchboard.butler.in_flight.reject_external_calls()
    answer = await ingest(switchboard, envelope(event={"external_event_id": str(uuid7())}))
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "shutting_down")
    assert answer.json()["error"]["retryable"]
