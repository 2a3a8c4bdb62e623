"""A message as it comes in: the strict, versioned envelope and what the inbox keeps of it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal

from butlers.domain.errors import InvalidMessage, MessageTooLarge, UnknownChannel
from butlers.domain.request import RequestContext, joined
from butlers.domain.strict import STRICT

MAX_MESSAGE_BYTES = 1_000_000
MAX_NAME = 1_000  # characters; a database index holds no more


class Channel(StrEnum):
    CONSOLE = "console"
    EMAIL = "email"
    WEBHOOK = "webhook"


class PolicyTier(StrEnum):
    HIGH_PRIORITY = "high_priority"
    INTERACTIVE = "interactive"
    DEFAULT = "default"

    @property
    def rank(self) -> int:
        """Lower is served first."""
        return list(PolicyTier).index(self)


class IngestionTier(StrEnum):
    FULL = "full"
    METADATA = "metadata"  # that it came, not what it says


@dataclass(frozen=True, slots=True)
class Source:
    channel: str
    provider: str
    endpoint_identity: str
    __pydantic_config__ = STRICT


@dataclass(frozen=True, slots=True)
class Event:
    external_event_id: str  # empty: the source has no ids, and the content stands for one
    observed_at: datetime
    external_thread_id: str | None = None
    external_reply_to: str | None = None  # the event, or the message of ours, that it answers
    __pydantic_config__ = STRICT


@dataclass(frozen=True, slots=True)
class Sender:
    identity: str
    __pydantic_config__ = STRICT


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file that came with a message: its content on the way in, its reference from the door on."""

    media_type: str
    filename: str | None = None
    size_bytes: int | None = None
    storage_ref: str | None = None
    content: str | None = None  # base64
    __pydantic_config__ = STRICT


@dataclass(frozen=True, slots=True)
class Payload:
    normalized_text: str
    raw: dict[str, Any] | None = None
    attachments: tuple[Attachment, ...] = ()
    __pydantic_config__ = STRICT


@dataclass(frozen=True, slots=True)
class Control:
    idempotency_key: str | None = None
    policy_tier: PolicyTier = PolicyTier.DEFAULT
    ingestion_tier: IngestionTier = IngestionTier.FULL
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
    def dedupe_key(self) -> str | None:
        """One message has one key, however often its connector sends it. None: its source gives it no
        name, and only its content can tell whether it is the same."""
        source = self.source
        if self.control.idempotency_key:
            return joined(
                "idem", source.channel, source.endpoint_identity, self.control.idempotency_key
            )
        if not self.event.external_event_id.strip():
            return None
        return joined(
            "event",
            source.channel,
            source.provider,
            source.endpoint_identity,
            self.event.external_event_id,
        )

    @property
    def headers(self) -> dict[str, str]:
        return headers_of(self.payload.raw)

    def check(self) -> None:
        """Refuse what could not be stored or answered, before anything is stored."""
        if self.source.channel not in list(Channel):
            known = ", ".join(Channel)
            raise UnknownChannel(
                f"there is no channel {self.source.channel!r}", hint=f"channels: {known}"
            )
        if self.control.ingestion_tier is IngestionTier.METADATA:
            self._check_metadata()
        elif not self.payload.attachments or self.payload.normalized_text.strip():
            check_text(self.payload.normalized_text)
        check_storable("the envelope", self.wire_fields())
        longest = max((len(name) for name in self._names()), default=0)
        if longest > MAX_NAME:
            raise InvalidMessage(
                f"a name in the envelope has {longest:,} characters; at most {MAX_NAME:,} are taken",
                hint="ids, threads and addresses are names, not texts",
            )
        if self.event.observed_at.tzinfo is None:
            raise InvalidMessage("event.observed_at has no UTC offset", hint="use RFC 3339")

    def wire_fields(self) -> list[str]:
        files = (
            text
            for file in self.payload.attachments
            for text in (file.media_type, file.filename or "", file.storage_ref or "")
        )
        return [*self._names(), *files, *_texts(self.payload.raw)]

    def _names(self) -> list[str]:
        return [
            self.source.provider,
            self.source.endpoint_identity,
            self.event.external_event_id,
            self.event.external_thread_id or "",
            self.event.external_reply_to or "",
            self.sender.identity,
            self.control.idempotency_key or "",
            self.control.trace_id or "",
        ]

    def _check_metadata(self) -> None:
        if self.payload.raw is not None or self.payload.attachments:
            raise InvalidMessage(
                "a message of the tier metadata carries neither raw nor attachments",
                hint="leave payload.raw out, or use the tier full",
            )

    @property
    def content_hash(self) -> str:
        parts = [self.payload.normalized_text]
        parts += [file.storage_ref or "" for file in self.payload.attachments]
        return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()


def headers_of(raw: dict[str, Any] | None) -> dict[str, str]:
    """The headers of a mail, by their names in lower case."""
    found = (raw or {}).get("headers")
    if not isinstance(found, dict):
        return {}
    return {name.lower(): str(value) for name, value in found.items()}


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
    reply_to: str | None = None
    attachments: tuple[Attachment, ...] = ()
    part: str | None = None  # the butler whose part of a split message this is
