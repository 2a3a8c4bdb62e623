"""A message as it comes in: the strict, versioned envelope and what the inbox keeps of it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal

from butlers.domain.errors import InvalidMessage, MessageTooLarge, UnknownChannel
from butlers.domain.request import RequestContext
from butlers.domain.strict import STRICT

MAX_MESSAGE_BYTES = 1_000_000


class Channel(StrEnum):
    CONSOLE = "console"


class PolicyTier(StrEnum):
    HIGH_PRIORITY = "high_priority"
    INTERACTIVE = "interactive"
    DEFAULT = "default"

    @property
    def rank(self) -> int:
        """Lower is served first."""
        return list(PolicyTier).index(self)


@dataclass(frozen=True, slots=True)
class Source:
    channel: str
    provider: str
    endpoint_identity: str
    __pydantic_config__ = STRICT


@dataclass(frozen=True, slots=True)
class Event:
    external_event_id: str
    observed_at: datetime
    external_thread_id: str | None = None
    __pydantic_config__ = STRICT


@dataclass(frozen=True, slots=True)
class Sender:
    identity: str
    __pydantic_config__ = STRICT


@dataclass(frozen=True, slots=True)
class Payload:
    normalized_text: str
    raw: dict[str, Any] | None = None
    __pydantic_config__ = STRICT


@dataclass(frozen=True, slots=True)
class Control:
    idempotency_key: str | None = None
    policy_tier: PolicyTier = PolicyTier.DEFAULT
    trace_id: str | None = None
    __pydantic_config__ = STRICT


@dataclass(frozen=True, slots=True)
class InboundEnvelope:
    source: Source
    event: Event
    sender: Sender
    payload: Payload
    control: Control = field(default_factory=Control)
    schema_version: Literal["ingest.v1"] = "ingest.v1"
    __pydantic_config__ = STRICT

    @property
    def dedupe_key(self) -> str:
        """One message has one key, however often its connector sends it."""
        source = self.source
        if self.control.idempotency_key:
            return _joined(
                "idem", source.channel, source.endpoint_identity, self.control.idempotency_key
            )
        return _joined(
            "event",
            source.channel,
            source.provider,
            source.endpoint_identity,
            self.event.external_event_id,
        )

    def check(self) -> None:
        """Refuse what could not be stored or answered, before anything is stored."""
        if self.source.channel not in list(Channel):
            known = ", ".join(Channel)
            raise UnknownChannel(
                f"there is no channel {self.source.channel!r}", hint=f"channels: {known}"
            )
        check_text(self.payload.normalized_text)
        check_storable("the envelope", self.wire_fields())
        if not self.event.external_event_id.strip() and not self.control.idempotency_key:
            raise InvalidMessage(
                "the message has neither an event id nor an idempotency key",
                hint="a connector must name the event so that a retry is not a second message",
            )
        if self.event.observed_at.tzinfo is None:
            raise InvalidMessage("event.observed_at has no UTC offset", hint="use RFC 3339")

    def wire_fields(self) -> list[str]:
        return [
            self.source.provider,
            self.source.endpoint_identity,
            self.event.external_event_id,
            self.event.external_thread_id or "",
            self.sender.identity,
            self.control.idempotency_key or "",
            self.control.trace_id or "",
            *_texts(self.payload.raw),
        ]

    @property
    def content_hash(self) -> str:
        text = self.payload.normalized_text.encode("utf-8", "surrogatepass")
        return hashlib.sha256(text).hexdigest()


def _joined(*parts: str) -> str:
    """One key of several parts, so that "a:b" and "c" are not "a" and "b:c"."""
    return ":".join(part.replace("%", "%25").replace(":", "%3A") for part in parts)


def _texts(value: Any) -> Iterator[str]:
    """Every text in JSON data, keys too. Its JSON form would show a NUL only in disguise."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif value is not None:
        yield str(value)


def check_text(text: str) -> None:
    """What a person wrote: there, not too long, and text that a database and a terminal can hold."""
    if not text.strip():
        raise InvalidMessage("the message is empty", hint="say something")
    check_storable("the message", [text])


def check_storable(what: str, texts: list[str]) -> None:
    size = 0
    for text in texts:
        if "\x00" in text:
            raise InvalidMessage(f"{what} contains a NUL byte", hint="send text, not binary data")
        try:
            size += len(text.encode("utf-8"))
        except UnicodeEncodeError as error:
            raise InvalidMessage(
                f"{what} is not valid UTF-8 at character {error.start}", hint="send UTF-8 text"
            ) from None
    if size > MAX_MESSAGE_BYTES:
        raise MessageTooLarge(
            f"{what} has {size:,} bytes; at most {MAX_MESSAGE_BYTES:,} are taken",
            hint="send the long part as a file, or in pieces",
        )


@dataclass(frozen=True, slots=True)
class InboxItem:
    """A message that was accepted: stored, committed and waiting to be routed."""

    request: RequestContext
    text: str
    tier: PolicyTier
