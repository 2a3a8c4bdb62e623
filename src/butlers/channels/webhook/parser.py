"""Turns a signed request of a program into an envelope.

The signature is made as in ``webhook/sender.py``, and its timestamp is at most two minutes old. The body is
JSON: ``text``, and optionally ``id``, ``sender``, ``thread``, ``reply_to`` and ``attachments``.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from butlers.channels.webhook.sender import WEBHOOK, sign
from butlers.domain.clock import Clock
from butlers.domain.errors import InvalidMessage, NotAuthenticated
from butlers.domain.json_safe import STRICT
from butlers.domain.message import (
    OWNER,
    Attachment,
    Control,
    Event,
    InboundEnvelope,
    Payload,
    PolicyTier,
    Sender,
    Source,
)
from butlers.wire.codec import decode

TIMESTAMP, SIGNATURE = "butlers-timestamp", "butlers-signature"
# Within this time a replayed copy is recognized as a duplicate by its id or its text.
MAX_CLOCK_SKEW = timedelta(minutes=2)
MAX_TIMESTAMP_DIGITS = 12


@dataclass(frozen=True, slots=True)
class WebhookMessage:
    """The body of a request."""

    text: str
    id: str = ""
    sender: str = ""
    thread: str | None = None
    reply_to: str | None = None
    attachments: tuple[Attachment, ...] = ()
    __pydantic_config__ = STRICT


def check_signature(headers: Mapping[str, str], body: bytes, secret: str, clock: Clock) -> None:
    """Raise NotAuthenticated for a wrong or old signature, with the same message for both."""
    timestamp = headers.get(TIMESTAMP, "")
    expected = sign(secret, timestamp, body)
    signed = hmac.compare_digest(expected.encode(), headers.get(SIGNATURE, "").encode())
    known = timestamp.isascii() and timestamp.isdecimal() and len(timestamp) <= MAX_TIMESTAMP_DIGITS
    age = abs(clock.now().timestamp() - int(timestamp)) if known else None
    if not signed or age is None or age > MAX_CLOCK_SKEW.total_seconds():
        raise NotAuthenticated(
            "the signature is missing, wrong or too old",
            hint="sign timestamp + '.' + body with the webhook's secret, and check the clock",
        )


def parse(name: str, body: bytes, clock: Clock, *, owners: bool) -> InboundEnvelope:
    """Return the envelope of a request. ``owners``: the webhook's messages are the owner's own."""
    try:
        data = json.loads(body)
    except ValueError as error:
        raise InvalidMessage(
            f"the body is not JSON: {error}", hint='for example {"text": "hello"}'
        ) from None
    message = decode(WebhookMessage, data)
    if not owners and message.sender.strip() == OWNER:
        raise InvalidMessage(
            "this webhook is not the owner's, so its sender cannot be 'owner'",
            hint="use another sender, or leave it out",
        )
    sender = OWNER if owners else message.sender.strip() or name
    address = f"{name}:{sender}"
    return InboundEnvelope(
        source=Source(WEBHOOK, WEBHOOK, address),
        event=Event(message.id.strip(), clock.now(), message.thread, message.reply_to),
        sender=Sender(address),
        payload=Payload(message.text, attachments=message.attachments),
        control=Control(policy_tier=PolicyTier.INTERACTIVE if owners else PolicyTier.DEFAULT),
    )
