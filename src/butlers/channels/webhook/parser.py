"""A generic way in: a program posts a signed message, and it becomes an envelope.

The signature is the one of the way out (``channels.webhook``), over a timestamp that is a few minutes off
at most.
The body is JSON: ``text``, and where the program has them ``id``, ``sender``, ``thread``, ``reply_to`` and
``attachments``.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from butlers.channels.webhook.sender import sign
from butlers.domain.clock import Clock
from butlers.domain.errors import InvalidMessage, NotAuthenticated
from butlers.domain.message import (
    Attachment,
    Channel,
    Control,
    Event,
    InboundEnvelope,
    Payload,
    PolicyTier,
    Sender,
    Source,
)
from butlers.domain.request import OWNER
from butlers.domain.strict import STRICT
from butlers.wire.codec import decode

TIMESTAMP, SIGNATURE = "butlers-timestamp", "butlers-signature"
# How far a sender's clock may be off. A copy played back meanwhile is known by its id or its words.
LATEST = timedelta(minutes=2)
LONGEST_TIME = 12  # digits


@dataclass(frozen=True, slots=True)
class Post:
    """What a program posts."""

    text: str
    id: str = ""
    sender: str = ""
    thread: str | None = None
    reply_to: str | None = None
    attachments: tuple[Attachment, ...] = ()
    __pydantic_config__ = STRICT


def check_signature(headers: Mapping[str, str], body: bytes, secret: str, clock: Clock) -> None:
    """Refuse what was not signed with the secret, or long ago, without saying which."""
    timestamp = headers.get(TIMESTAMP, "")
    expected = sign(secret, timestamp, body)
    signed = hmac.compare_digest(expected.encode(), headers.get(SIGNATURE, "").encode())
    known = timestamp.isascii() and timestamp.isdecimal() and len(timestamp) <= LONGEST_TIME
    age = abs(clock.now().timestamp() - int(timestamp)) if known else None
    if not signed or age is None or age > LATEST.total_seconds():
        raise NotAuthenticated(
            "the signature is missing, wrong or too old",
            hint="sign timestamp + '.' + body with the webhook's secret, and check the clock",
        )


def parse(name: str, body: bytes, clock: Clock, *, owners: bool) -> InboundEnvelope:
    try:
        data = json.loads(body)
    except ValueError as error:
        raise InvalidMessage(
            f"the body is not JSON: {error}", hint='for example {"text": "hello"}'
        ) from None
    post = decode(Post, data)
    if not owners and post.sender.strip() == OWNER:
        raise InvalidMessage(
            "this webhook does not speak for the owner", hint="name another sender, or none"
        )
    sender = OWNER if owners else post.sender.strip() or name
    address = f"{name}:{sender}"
    return InboundEnvelope(
        source=Source(Channel.WEBHOOK, "webhook", address),
        event=Event(post.id.strip(), clock.now(), post.thread, post.reply_to),
        sender=Sender(address),
        payload=Payload(post.text, attachments=post.attachments),
        control=Control(policy_tier=PolicyTier.INTERACTIVE if owners else PolicyTier.DEFAULT),
    )
