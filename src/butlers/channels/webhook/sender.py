"""A generic way out: a signed POST to an address that the owner has configured.

The signature is ``v1=`` and the HMAC-SHA256, in hex, of timestamp, a full stop and the body. The receiver
answers 2xx with its own id of the message, ``{"id": "..."}``, and takes one delivery id once.

One that is not said to do so (``idempotent``) is asked again only where it can not have the message: nobody
listens there, or it answers 429 or 503 and says with ``Retry-After`` when to come again. After any other
failure the delivery ends as unknown.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import httpx

from butlers.channels.http_answers import error_for
from butlers.domain.clock import Clock
from butlers.domain.delivery import DeliveryReceipt, DeliveryRequest
from butlers.domain.errors import (
    ChannelUnavailable,
    DeliveryRefused,
    DeliveryUncertain,
)
from butlers.domain.message import Channel

CONNECT_S = 5.0
TIMEOUT_S = 10.0  # from the connection to the end of the answer
LARGEST_ANSWER = 64 * 1024
LONGEST_ID = 256

Secret = Callable[[str], Awaitable[str]]


@dataclass(frozen=True, slots=True)
class Hook:
    """One address that deliveries can be posted to."""

    url: str
    secret_name: str
    idempotent: bool  # the owner's word that the receiver keeps to the idempotency key


def sign(secret: str, timestamp: str, body: bytes) -> str:
    signed = timestamp.encode() + b"." + body
    return f"v1={hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()}"


class WebhookChannel:
    name = str(Channel.WEBHOOK)

    def __init__(
        self,
        hooks: Mapping[str, Hook],
        secret: Secret,
        clock: Clock,
        *,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._hooks = hooks
        self._secret = secret
        self._clock = clock
        self._timeout_s = timeout_s

    def idempotent(self, target: str) -> bool:
        hook = self._hooks.get(_hook_name(target))
        return hook is not None and hook.idempotent

    def line(self, target: str) -> str | None:
        name = _hook_name(target)
        return f"{self.name}:{name}" if name in self._hooks else None

    async def send(self, delivery: DeliveryRequest) -> DeliveryReceipt:
        hook = self._hook(delivery.target)
        body = _body(delivery)
        timestamp = str(int(self._clock.now().timestamp()))
        headers = {
            "Content-Type": "application/json",
            "Butlers-Timestamp": timestamp,
            "Butlers-Signature": sign(await self._secret(hook.secret_name), timestamp, body),
            "Idempotency-Key": str(delivery.delivery_id),
        }
        answer = await self._post(hook, body, headers)
        return DeliveryReceipt(delivery.delivery_id, self.name, answer, self._clock.now())

    def _hook(self, target: str) -> Hook:
        if (hook := self._hooks.get(_hook_name(target))) is None:
            raise DeliveryRefused(
                f"there is no webhook {_hook_name(target)!r}",
                hint=f"a target is NAME:WHOM; names: {', '.join(self._hooks) or 'none'}",
            )
        return hook

    async def _post(self, hook: Hook, body: bytes, headers: Mapping[str, str]) -> str:
        # A connection of its own each time: one that was kept may have been closed by the other side,
        # and then nobody knows whether the request was read.
        url, connect_s = hook.url, min(CONNECT_S, self._timeout_s)
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
                    raise error_for(answer, text, now, repeatable=hook.idempotent)
                return _proof(answer, text)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            raise ChannelUnavailable(f"{_host(url)} can not be reached ({error})") from error
        except (httpx.HTTPError, OSError, TimeoutError) as error:
            raise DeliveryUncertain(
                f"{_host(url)} was asked and did not answer ({type(error).__name__})"
            ) from error


@cache
def _tls() -> ssl.SSLContext:
    """Made once: reading the certificate store takes longer than a delivery."""
    return httpx.create_ssl_context(trust_env=False)


def _hook_name(target: str) -> str:
    return target.partition(":")[0]


def _host(url: str) -> str:
    return httpx.URL(url).host


def _body(delivery: DeliveryRequest) -> bytes:
    told: dict[str, Any] = {
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
    return json.dumps(told, ensure_ascii=False, separators=(",", ":")).encode()


async def _read(answer: httpx.Response) -> str:
    found = b""
    async for chunk in answer.aiter_bytes():
        found += chunk
        if len(found) > LARGEST_ANSWER:
            break
    return found[:LARGEST_ANSWER].decode("utf-8", "replace")


def _proof(answer: httpx.Response, text: str) -> str:
    """The platform's own id."""
    try:
        told = json.loads(text)
    except ValueError:
        told = None
    proof = told.get("id") if isinstance(told, dict) else None
    if isinstance(proof, bool) or not isinstance(proof, str | int) or not str(proof).strip():
        raise DeliveryUncertain(
            f"{answer.request.url.host} answered {answer.status_code} without an id",
            hint='it has to answer with its own id of the message: {"id": "..."}',
            response=text,
        )
    return str(proof)[:LONGEST_ID]
