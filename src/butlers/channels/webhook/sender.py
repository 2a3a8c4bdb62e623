"""Sends deliveries as signed POST requests to the URLs that the owner has configured.

The signature is ``v1=`` and the HMAC-SHA256, in hex, of timestamp, a full stop and the body. The receiver
answers 2xx with its own id of the message, ``{"id": "..."}``.

A receiver that is configured as ``idempotent`` accepts one delivery id once, so a delivery to it may be sent
again after any failure. To any other receiver it is sent again only if the message cannot have arrived: the
connection was refused, or the answer was 408, 425, 429 or 503 with a ``Retry-After`` header. After any other
failure the state of the delivery is ``unknown``.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import ssl
from collections.abc import Mapping
from functools import cache
from typing import Any

import httpx

from butlers.channels.base import ReadSecret
from butlers.channels.webhook.http_errors import error_for
from butlers.config.values import ConfigTable, Text, WebUrl
from butlers.domain.clock import Clock
from butlers.domain.delivery import DeliveryReceipt, DeliveryRequest
from butlers.domain.errors import (
    ChannelUnavailable,
    DeliveryRefused,
    DeliveryUncertain,
)
from butlers.domain.json_safe import parse_json

WEBHOOK = "webhook"
CONNECT_S = 5.0
TIMEOUT_S = 10.0  # from the connection to the end of the response
MAX_RESPONSE_BYTES = 64 * 1024
MAX_ID_LENGTH = 256


class OutboundWebhook(ConfigTable):
    """``[channels.webhook.NAME]``: a URL that deliveries are posted to."""

    url: WebUrl
    """Address that messages are posted to."""
    secret_name: Text
    """Name of the stored secret that messages are signed with."""
    idempotent: bool = False
    """The receiver accepts one `Idempotency-Key` once, so that sending again is harmless."""


def sign(secret: str, timestamp: str, body: bytes) -> str:
    """Return the signature of a body, for the header ``Butlers-Signature``."""
    signed = timestamp.encode() + b"." + body
    return f"v1={hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()}"


class WebhookSender:
    name = WEBHOOK

    def __init__(
        self,
        targets: Mapping[str, OutboundWebhook],
        secret: ReadSecret,
        clock: Clock,
        *,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._targets = targets
        self._secret = secret
        self._clock = clock
        self._timeout_s = timeout_s

    def idempotent(self, target: str) -> bool:
        found = self._targets.get(_webhook_name(target))
        return found is not None and found.idempotent

    def line(self, target: str) -> str | None:
        name = _webhook_name(target)
        return f"{self.name}:{name}" if name in self._targets else None

    async def send(self, delivery: DeliveryRequest) -> DeliveryReceipt:
        target = self._target(delivery.target)
        body = _body(delivery)
        timestamp = str(int(self._clock.now().timestamp()))
        headers = {
            "Content-Type": "application/json",
            "Butlers-Timestamp": timestamp,
            "Butlers-Signature": sign(await self._secret(target.secret_name), timestamp, body),
            "Idempotency-Key": str(delivery.delivery_id),
        }
        message_id = await self._post(target, body, headers)
        return DeliveryReceipt(delivery.delivery_id, self.name, message_id, self._clock.now())

    def _target(self, target: str) -> OutboundWebhook:
        name = _webhook_name(target)
        if name not in self._targets:
            known = ", ".join(self._targets) or "none"
            raise DeliveryRefused(
                f"there is no webhook {name!r}",
                hint=f"a target is WEBHOOK:RECIPIENT; webhooks: {known}",
            )
        return self._targets[name]

    async def _post(self, target: OutboundWebhook, body: bytes, headers: Mapping[str, str]) -> str:
        # A new connection each time: the other side may have closed a kept one, and then it is not known
        # whether the request was read.
        url, connect_s = target.url, min(CONNECT_S, self._timeout_s)
        client = httpx.AsyncClient(
            timeout=httpx.Timeout(self._timeout_s, connect=connect_s),
            follow_redirects=False,
            trust_env=False,
            verify=_tls() if url.startswith("https:") else False,
        )
        try:
            async with (
                asyncio.timeout(connect_s + self._timeout_s),
                client,
                client.stream("POST", url, content=body, headers=dict(headers)) as answer,
            ):
                text = await _read(answer)
                if not answer.is_success:
                    now = self._clock.now()
                    raise error_for(answer, text, now, repeatable=target.idempotent)
                return _message_id(answer, text)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            raise ChannelUnavailable(f"{_host(url)} cannot be reached ({error})") from error
        except (httpx.HTTPError, OSError, TimeoutError) as error:
            raise DeliveryUncertain(
                f"{_host(url)} did not answer the request ({type(error).__name__})"
            ) from error


@cache
def _tls() -> ssl.SSLContext:
    """Return the TLS settings, made once: reading the certificate store takes longer than a delivery."""
    return httpx.create_ssl_context(trust_env=False)


def _webhook_name(target: str) -> str:
    return target.partition(":")[0]


def _host(url: str) -> str:
    return httpx.URL(url).host


def _body(delivery: DeliveryRequest) -> bytes:
    content: dict[str, Any] = {
        "schema_version": "webhook.v1",
        "delivery_id": str(delivery.delivery_id),
        "intent": str(delivery.intent),
        "recipient": delivery.target.partition(":")[2],
        "message": delivery.message,
        "emoji": delivery.emoji,
        "thread": delivery.thread,
        "in_reply_to": delivery.source_event,
        "origin": delivery.origin,
        "request_id": str(delivery.request_id) if delivery.request_id else None,
    }
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()


async def _read(answer: httpx.Response) -> str:
    content = b""
    async for chunk in answer.aiter_bytes():
        content += chunk
        if len(content) > MAX_RESPONSE_BYTES:
            break
    return content[:MAX_RESPONSE_BYTES].decode("utf-8", "replace")


def _message_id(answer: httpx.Response, text: str) -> str:
    """Return the receiver's own id of the message."""
    try:
        content = parse_json(text)
    except ValueError:
        content = None
    found = content.get("id") if isinstance(content, dict) else None
    if isinstance(found, bool) or not isinstance(found, str | int) or not str(found).strip():
        raise DeliveryUncertain(
            f"{answer.request.url.host} answered {answer.status_code} without an id",
            hint='the receiver has to answer with its own id of the message: {"id": "..."}',
            response=text,
        )
    return str(found)[:MAX_ID_LENGTH]
