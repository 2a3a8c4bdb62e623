"""Turns a signed request of a program into an envelope.

The signature is made as in ``webhook/sender.py``, and its timestamp is at most two minutes old. The body is
JSON: ``text``, and optionally ``id``, ``sender``, ``thread``, ``reply_to`` and ``attachments``.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from butlers.channels.webhook.sender import WEBHOOK, sign
from butlers.domain.clock import Clock
from butlers.domain.errors import InvalidMessage, NotAuthenticated
from butlers.domain.json_safe import STRICT, parse_json
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
SIGNATURE_LENGTH = len(sign("", "", b""))


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


class NotSigned(NotAuthenticated):
    """The signature is missing, wrong or too old."""

    def __init__(self) -> None:
        # One answer for every cause, so that a sender cannot find out which webhooks exist.
        super().__init__(
            "the signature is missing, wrong or too old",
            hint="sign timestamp + '.' + body with the webhook's secret, and check the clock",
        )


def check_headers(headers: Mapping[str, str], clock: Clock) -> None:
    """Raise NotSigned, before the body is read, if no body can match the timestamp and the signature."""
    timestamp, signature = headers.get(TIMESTAMP, ""), headers.get(SIGNATURE, "")
    known = timestamp.isascii() and timestamp.isdecimal() and len(timestamp) <= MAX_TIMESTAMP_DIGITS
    if not known or len(signature) != SIGNATURE_LENGTH:
        raise NotSigned
    if abs(clock.now().timestamp() - int(timestamp)) > MAX_CLOCK_SKEW.total_seconds():
        raise NotSigned


def check_signature(headers: Mapping[str, str], body: bytes, secret: str) -> None:
    """Raise NotSigned if the body does not match the signature."""
    expected = sign(secret, headers.get(TIMESTAMP, ""), body)
    if not hmac.compare_digest(expected.encode(), headers.get(SIGNATURE, "").encode()):
        raise NotSigned


def parse(name: str, body: bytes, clock: Clock, *, owners: bool) -> InboundEnvelope:
    """Return the envelope of a request. ``owners``: the webhook's messages are the owner's own."""
    try:
        data = parse_json(body)
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
