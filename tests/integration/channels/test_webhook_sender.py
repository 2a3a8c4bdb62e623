"""The webhook sender: signature, time limits, and the error for each response."""

from __future__ import annotations

import asyncio
import socket
from datetime import UTC, datetime

import pytest

from butlers.channels.webhook.http_errors import retry_after
from butlers.channels.webhook.sender import OutboundWebhook, WebhookSender, sign
from butlers.domain.errors import (
    ButlersError,
    ChannelBusy,
    ChannelFailed,
    ChannelUnavailable,
    DeliveryRefused,
    DeliveryUncertain,
)
from support.clocks import SetClock
from support.deliveries import SECRET, delivery
from support.webhook_server import CLOSE, HANG, Behaviour, WebhookServer, status

NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)


def channel(url: str, *, timeout_s: float = 10.0) -> WebhookSender:
    async def secret(_name: str) -> str:
        return SECRET

    targets = {
        "plain": OutboundWebhook(url=url, secret_name="HOOK_SECRET", idempotent=False),
        "sure": OutboundWebhook(url=url, secret_name="HOOK_SECRET", idempotent=True),
    }
    return WebhookSender(targets, secret, SetClock(NOW), timeout_s=timeout_s)


async def test_delivery_is_posted_with_signature_and_idempotency_key(server: WebhookServer) -> None:
    one = delivery("plain:anna:7", message="Grüße — \u2028 ok", thread="t-1")
    receipt = await channel(server.url).send(one)
    assert receipt.provider_message_id == "m1"
    (arrived,) = server.requests
    assert arrived.key == str(one.delivery_id)
    assert arrived.body == {
        "schema_version": "webhook.v1",
        "delivery_id": str(one.delivery_id),
        "intent": "reply",
        "recipient": "anna:7",
        "message": "Grüße — \u2028 ok",
        "emoji": None,
        "thread": "t-1",
        "in_reply_to": None,
        "origin": "health",
        "request_id": None,
    }
    stamp = arrived.headers["butlers-timestamp"]
    assert stamp == str(int(NOW.timestamp()))
    assert arrived.headers["butlers-signature"] == sign(SECRET, stamp, arrived.raw)
    assert arrived.headers["butlers-signature"] != sign("another", stamp, arrived.raw)
    assert SECRET not in str(arrived.headers)


@pytest.mark.parametrize(
    ("behaviour", "kind"),
    [
        (status(400), DeliveryRefused),
        (status(401), DeliveryRefused),
        (status(404), DeliveryRefused),
        (status(410), DeliveryRefused),
        (status(302, Location="http://127.0.0.1:1/"), DeliveryRefused),
        (status(304), DeliveryRefused),
        (status(503, Retry_After="7"), ChannelBusy),
        (status(429, Retry_After="7"), ChannelBusy),
        (status(408), DeliveryUncertain),
        (status(425), DeliveryUncertain),
        (status(429), DeliveryUncertain),
        (status(503), DeliveryUncertain),
        (status(503, Retry_After="soon"), DeliveryUncertain),
        (status(409), DeliveryUncertain),
        (status(500), DeliveryUncertain),
        (status(501), DeliveryUncertain),
        (status(502), DeliveryUncertain),
        (status(504), DeliveryUncertain),
        (status(200, "not json"), DeliveryUncertain),
        (status(204), DeliveryUncertain),
        (CLOSE, DeliveryUncertain),
    ],
    ids=str,
)
async def test_each_status_maps_to_one_error(
    server: WebhookServer, behaviour: Behaviour, kind: type[ButlersError]
) -> None:
    server.script(behaviour)
    with pytest.raises(ButlersError) as said:
        await channel(server.url).send(delivery())
    assert type(said.value) is kind
    assert len(server.requests) == 1  # nothing is followed, nothing repeated


@pytest.mark.parametrize("code", [409, 500, 501])
async def test_idempotent_receiver_error_is_failed_and_not_uncertain(
    server: WebhookServer, code: int
) -> None:
    server.script(status(code))
    with pytest.raises(ChannelFailed):
        await channel(server.url).send(delivery("sure:anna"))


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (408, ChannelUnavailable),
        (425, ChannelUnavailable),
        (503, ChannelUnavailable),
        (429, ChannelBusy),
    ],
)
async def test_idempotent_receiver_that_is_busy_is_retried(
    server: WebhookServer, code: int, kind: type[ButlersError]
) -> None:
    server.script(status(code))
    with pytest.raises(kind):
        await channel(server.url).send(delivery("sure:anna"))


async def test_timeout_is_uncertain(server: WebhookServer) -> None:
    server.script(HANG)
    with pytest.raises(DeliveryUncertain):
        await channel(server.url, timeout_s=0.2).send(delivery())


async def test_slow_response_body_times_out() -> None:
    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n")
        try:
            while True:
                writer.write(b" ")
                await writer.drain()
                await asyncio.sleep(0.05)
        except ConnectionError:
            writer.close()

    listening = await asyncio.start_server(drip, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    try:
        with pytest.raises(DeliveryUncertain):
            await channel(f"http://127.0.0.1:{port}/", timeout_s=0.3).send(delivery())
    finally:
        listening.close()


async def test_endless_response_is_cut(server: WebhookServer) -> None:
    server.script(status(200, '{"id": "m1", "x": "' + "x" * 1_000_000 + '"}', takes=True))
    with pytest.raises(DeliveryUncertain):
        await channel(server.url).send(delivery())


async def test_refused_connection_means_nothing_was_sent() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        with pytest.raises(ChannelUnavailable):  # bound, and nobody listens
            await channel(f"http://127.0.0.1:{port}/").send(delivery())


async def test_unconfigured_webhook_name_is_refused(server: WebhookServer) -> None:
    for target in ("nobody:anna", "", ":anna"):
        with pytest.raises(DeliveryRefused) as refused:
            await channel(server.url).send(delivery(target))
        assert "plain" in str(refused.value.hint)


def test_only_configured_targets_are_idempotent(server: WebhookServer) -> None:
    made = channel(server.url)
    assert made.idempotent("sure:x")
    assert not made.idempotent("plain:x")
    assert not made.idempotent("nobody:x")
    assert made.line("plain:x") == "webhook:plain" != made.line("sure:x")


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None),
        ("", None),
        ("soon", None),
        ("nan", None),
        ("30", 30.0),
        ("0", 1.0),
        ("-5", 1.0),
        ("1e9", 3600.0),
        ("inf", 3600.0),
        ("Mon, 04 May 2026 12:02:00 GMT", 120.0),
        ("Mon, 04 May 2026 11:00:00 GMT", 1.0),
    ],
)
def test_retry_after_is_read_as_seconds_or_date(header: str | None, seconds: float | None) -> None:
    assert retry_after(header, NOW) == seconds
