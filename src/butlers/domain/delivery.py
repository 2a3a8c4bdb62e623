"""Outgoing messages: the delivery request, its states, and the receipt."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Literal
from uuid import UUID

from butlers.domain.errors import InvalidMessage
from butlers.domain.json_safe import STRICT
from butlers.domain.message import CONSOLE, check_storable, check_text, joined

OWNERS_CONSOLE = "console:owner"
LONGEST_EMOJI = 16  # characters; a family with skin tones has eleven
MAX_ACTIONS = 8
MAX_LABEL = 40  # characters
MAX_VALUE_BYTES = 64  # the least that a platform accepts (Telegram)
MAX_SUBJECT = 300  # characters
MAX_REFERENCES = 50
_UUID7 = 7


class Intent(StrEnum):
    SEND = "send"
    REPLY = "reply"
    REACT = "react"


class DeliveryState(StrEnum):
    ACCEPTED = "accepted"  # stored, waiting for its turn
    DEFERRED = "deferred"  # waits until ``not_before``
    PARKED = "parked"  # waits for the owner's approval
    SENDING = "sending"  # the channel is being called
    DELIVERED = "delivered"  # the platform has assigned it an id
    UNKNOWN = "unknown"  # it may or may not have been sent; not retried automatically
    EXPIRED = "expired"  # too old before its turn came
    FAILED = "failed"  # refused, or attempts used up
    DISCARDED = "discarded"  # by the owner

    @property
    def is_over(self) -> bool:
        """Return whether the delivery does not continue by itself."""
        return self in _OVER

    @property
    def may_resend(self) -> bool:
        return self.is_over and self is not DeliveryState.DELIVERED


_OVER = frozenset(
    {
        DeliveryState.DELIVERED,
        DeliveryState.UNKNOWN,
        DeliveryState.EXPIRED,
        DeliveryState.FAILED,
        DeliveryState.DISCARDED,
    }
)


class AttemptOutcome(StrEnum):
    DELIVERED = "delivered"
    REFUSED = "refused"
    UNAVAILABLE = "unavailable"
    FAILED = "failed"
    BUSY = "busy"
    UNCERTAIN = "uncertain"
    DIED = "died"  # the process ended during the attempt

    @property
    def is_trouble(self) -> bool:
        """Return whether the outcome is a failure of the channel, not of the one delivery."""
        return self in (self.UNAVAILABLE, self.FAILED, self.UNCERTAIN)


def lane_to(channel: str, target: str) -> str:
    """Return the queue lane of a recipient: its deliveries keep their order on every hop."""
    return joined(channel, target)


@dataclass(frozen=True, slots=True)
class DeliveryAction:
    """A choice that a channel may offer as a button below the message.

    A channel sends ``value`` back as the text of a message from whoever pressed it.
    """

    label: str
    value: str  # such as "/approve ID"
    __pydantic_config__ = STRICT

    def check(self) -> None:
        label = self.label.strip()
        check_storable("a button", [label, self.value])
        if not label or len(label) > MAX_LABEL:
            raise InvalidMessage(
                f"the label of a button has {len(label)} characters",
                hint=f"use 1 to {MAX_LABEL} characters",
            )
        size = len(self.value.encode())
        if not 0 < size <= MAX_VALUE_BYTES:
            raise InvalidMessage(
                f"the value of a button has {size} bytes",
                hint=f"use a text such as /approve ID, of at most {MAX_VALUE_BYTES} bytes",
            )


@dataclass(frozen=True, slots=True)
class DeliveryRequest:
    delivery_id: UUID
    origin: str
    intent: Intent
    channel: str
    target: str  # recipient on the channel
    message: str
    request_id: UUID | None = None
    thread: str | None = None
    trace_id: str | None = None  # of the work that caused it
    ordinal: int = 0  # number of equal messages of this request before it
    emoji: str | None = None  # of a reaction, which has no text
    source_event: str | None = None  # the platform's id of the message that it answers
    outside_links: tuple[str, ...] = ()  # links whose host came from untrusted text
    subject: str | None = None  # on channels that have one
    references: tuple[str, ...] = ()  # platform ids of the thread's earlier messages, oldest first
    actions: tuple[DeliveryAction, ...] = ()  # buttons; text on channels without them
    failure: bool = False  # it says that the request could not be fulfilled
    schema_version: Literal["notify.v1"] = "notify.v1"
    __pydantic_config__ = STRICT

    @classmethod
    def to_owner(cls, delivery_id: UUID, origin: str, message: str) -> DeliveryRequest:
        """Return a notice of the system to the owner. The same id is one delivery, also after a crash."""
        return cls(delivery_id, origin, Intent.SEND, CONSOLE, OWNERS_CONSOLE, message)

    @property
    def idempotency_key(self) -> str:
        """Key that makes the same notification of the same request one delivery."""
        if self.request_id is None:
            return str(self.delivery_id)
        parts = (
            str(self.request_id),
            self.origin,
            self.intent,
            self.channel,
            self.target,
            self.message,
            str(self.ordinal),
            # Only if there is one, so that requests queued before reactions existed keep their key.
            *((self.emoji,) if self.emoji else ()),
            *((self.subject,) if self.subject and self.intent is Intent.SEND else ()),
        )
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    @property
    def lane(self) -> str:
        return lane_to(self.channel, self.target)

    @property
    def text(self) -> str:
        """The message with its actions as lines of text, for channels without buttons."""
        lines = [f"{action.label}: {action.value}" for action in self.actions]
        return "\n".join([self.emoji or self.message, *lines])

    @property
    def made_at(self) -> datetime | None:
        """Time of the request, which may be long before its acceptance. It is encoded in the id."""
        if self.delivery_id.version != _UUID7:
            return None
        return datetime.fromtimestamp((self.delivery_id.int >> 80) / 1000, UTC)

    def check(self) -> None:
        """Raise InvalidMessage for a request that no channel could deliver."""
        if self.intent is Intent.REACT:
            check_emoji(self.emoji)
            if self.message:
                raise InvalidMessage(
                    "a reaction has no text", hint="send the text in a separate reply"
                )
        else:
            check_text(self.message)
            if self.emoji is not None:
                raise InvalidMessage(
                    "only a reaction has an emoji", hint='use intent "react", or put it in the text'
                )
        check_storable("the address", [self.channel, self.target, self.thread or ""])
        self._check_extras()

    def _check_extras(self) -> None:
        subject = self.subject or ""
        check_storable("the subject", [subject, *self.references])
        if len(subject) > MAX_SUBJECT or any(sign in subject for sign in "\r\n"):
            raise InvalidMessage(
                "the subject is too long or has several lines",
                hint=f"use one line of at most {MAX_SUBJECT} characters",
            )
        if len(self.actions) > MAX_ACTIONS or len(self.references) > MAX_REFERENCES:
            raise InvalidMessage(
                "the delivery has too many buttons or references",
                hint=f"at most {MAX_ACTIONS} buttons and {MAX_REFERENCES} references",
            )
        for action in self.actions:
            action.check()


def check_emoji(emoji: str | None) -> None:
    if not emoji or not emoji.strip():
        raise InvalidMessage("a reaction needs an emoji", hint='for example emoji "👍"')
    check_storable("the emoji", [emoji])
    if len(emoji) > LONGEST_EMOJI or any(sign.isspace() for sign in emoji) or emoji.isascii():
        raise InvalidMessage("that is not an emoji", hint='one emoji and nothing else: "👍"')


@dataclass(frozen=True, slots=True)
class DeliveryReceipt:
    delivery_id: UUID
    channel: str
    provider_message_id: str
    delivered_at: datetime
