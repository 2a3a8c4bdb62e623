"""What goes out: a request to deliver, its states, and the proof that it was."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Literal
from uuid import UUID

from butlers.domain.errors import InvalidMessage
from butlers.domain.message import Channel, check_storable, check_text
from butlers.domain.request import joined
from butlers.domain.strict import STRICT

OWNERS_CONSOLE = "console:owner"
LONGEST_EMOJI = 16  # characters; a family with skin tones has eleven
_UUID7 = 7


class Intent(StrEnum):
    SEND = "send"
    REPLY = "reply"
    REACT = "react"


class DeliveryState(StrEnum):
    ACCEPTED = "accepted"  # written down, its turn comes
    DEFERRED = "deferred"  # waits until ``not_before``
    PARKED = "parked"  # waits for the owner's word
    SENDING = "sending"  # the channel is being asked
    DELIVERED = "delivered"  # the platform has given it an id
    UNKNOWN = "unknown"  # it may have gone out or not; never sent again by itself
    EXPIRED = "expired"  # its time was over before its turn came
    FAILED = "failed"  # refused, or out of attempts: a dead letter
    DISCARDED = "discarded"  # the owner did not want it sent

    @property
    def is_over(self) -> bool:
        """Whether it does not go on by itself."""
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
    DIED = "died"  # the process ended meanwhile

    @property
    def is_trouble(self) -> bool:
        """Whether it speaks against the channel, and not against the one delivery."""
        return self in (self.UNAVAILABLE, self.FAILED, self.UNCERTAIN)


def lane_to(channel: str, target: str) -> str:
    """What keeps its order on every hop: all that goes to one recipient."""
    return joined(channel, target)


@dataclass(frozen=True, slots=True)
class DeliveryRequest:
    delivery_id: UUID
    origin: str
    intent: Intent
    channel: str
    target: str  # whom on that channel: the endpoint a reply goes back to
    message: str
    request_id: UUID | None = None
    thread: str | None = None
    trace_id: str | None = None  # of the work that caused it
    ordinal: int = 0  # the how-manieth such message of this request
    emoji: str | None = None  # of a reaction, which has no text
    source_event: str | None = None  # the platform's id of the message that it answers
    outside_links: tuple[str, ...] = ()  # links whose host came from somebody else than the owner
    schema_version: Literal["notify.v1"] = "notify.v1"
    __pydantic_config__ = STRICT

    @classmethod
    def to_owner(cls, delivery_id: UUID, origin: str, message: str) -> DeliveryRequest:
        """What the house itself has to say. The same id is one delivery, also after a crash."""
        return cls(delivery_id, origin, Intent.SEND, Channel.CONSOLE, OWNERS_CONSOLE, message)

    @property
    def idempotency_key(self) -> str:
        """The same notification of the same request is one delivery, however often it is asked for."""
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
            # Only where there is one: what was queued before there were reactions keeps its key.
            *((self.emoji,) if self.emoji else ()),
        )
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    @property
    def lane(self) -> str:
        return lane_to(self.channel, self.target)

    @property
    def made_at(self) -> datetime | None:
        """When it was asked for, which may be long before it is accepted: its id knows."""
        if self.delivery_id.version != _UUID7:
            return None
        return datetime.fromtimestamp((self.delivery_id.int >> 80) / 1000, UTC)

    def check(self) -> None:
        """Refuse what no channel could deliver, before anything is written."""
        if self.intent is Intent.REACT:
            check_emoji(self.emoji)
            if self.message:
                raise InvalidMessage("a reaction has no text", hint="say it in a reply of its own")
        else:
            check_text(self.message)
            if self.emoji is not None:
                raise InvalidMessage(
                    "only a reaction has an emoji", hint='use intent "react", or put it in the text'
                )
        check_storable("the address", [self.channel, self.target, self.thread or ""])


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
