"""Inbound messages: the envelope, the request that it becomes, slash commands, and the route to a butler."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal
from uuid import UUID

from butlers.domain.errors import InvalidMessage, MessageTooLarge, UnknownChannel
from butlers.domain.json_safe import STRICT

OWNER = "owner"
BLOCKED = "blocked"


@dataclass(frozen=True, slots=True)
class RequestContext:
    """Origin of a message: set once when it is accepted, and carried unchanged to the reply."""

    request_id: UUID
    received_at: datetime
    source_channel: str
    source_endpoint_identity: str
    source_sender_identity: str
    source_thread_identity: str | None = None
    source_event_identity: str | None = None  # the platform's id of the message itself
    sender_roles: tuple[str, ...] = ()  # of the contact, read when the message was accepted
    trace_id: str | None = None
    __pydantic_config__ = STRICT

    @property
    def is_owners(self) -> bool:
        return OWNER in self.sender_roles

    @property
    def conversation(self) -> str:
        """Key of the messages that keep their order: those of a thread, or of a sender without threads."""
        thread = self.source_thread_identity or f"from {self.source_sender_identity}"
        return joined(self.source_channel, self.source_endpoint_identity, thread)


def joined(*parts: str) -> str:
    """Join parts into one unambiguous key: "a:b" and "c" differ from "a" and "b:c"."""
    return ":".join(part.replace("%", "%25").replace(":", "%3A") for part in parts)


BUTTON = "button"  # key of ``Payload.raw`` in a message that is a pressed button

MAX_MESSAGE_BYTES = 1_000_000
MAX_NAME = 1_000  # characters; a database index holds no more


CONSOLE = "console"  # the channel that is always there


class PolicyTier(StrEnum):
    HIGH_PRIORITY = "high_priority"
    INTERACTIVE = "interactive"
    DEFAULT = "default"

    @property
    def rank(self) -> int:
        """Priority in the queue; lower is served first."""
        return list(PolicyTier).index(self)


class IngestionTier(StrEnum):
    FULL = "full"
    METADATA = "metadata"  # the message is recorded, its text is not
    BULK = "bulk"  # of a program or a list: stored only, unless the sender is known
    HISTORY = "history"  # from before the channel was connected: stored only


@dataclass(frozen=True, slots=True)
class Source:
    channel: str
    provider: str
    endpoint_identity: str
    __pydantic_config__ = STRICT


@dataclass(frozen=True, slots=True)
class Event:
    external_event_id: str  # empty: the source has no ids, and the content is compared instead
    observed_at: datetime
    external_thread_id: str | None = None
    external_reply_to: str | None = None  # id of the event or sent message that it answers
    __pydantic_config__ = STRICT


@dataclass(frozen=True, slots=True)
class Sender:
    identity: str
    __pydantic_config__ = STRICT


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file that came with a message: its content on arrival, its storage reference afterwards."""

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
        """Key that a message keeps however often its connector sends it, or None if its source has no ids
        and only the content can be compared."""
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

    @property
    def is_button(self) -> bool:
        """True for a pressed button of one of our messages."""
        return bool((self.payload.raw or {}).get(BUTTON))

    def check(self, channels: Collection[str]) -> None:
        """Raise for a message that cannot be stored or answered. ``channels`` are the known ones."""
        if self.source.channel not in channels:
            known = ", ".join(sorted(channels))
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
                f"a name in the envelope has {longest:,} characters; the limit is {MAX_NAME:,}",
                hint="shorten the ids, thread names and addresses",
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
                "a message of the metadata tier must not carry raw data or attachments",
                hint="omit payload.raw and attachments, or use the full tier",
            )

    @property
    def content_hash(self) -> str:
        parts = [self.payload.normalized_text]
        parts += [file.storage_ref or "" for file in self.payload.attachments]
        return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()


def headers_of(raw: dict[str, Any] | None) -> dict[str, str]:
    """Return the headers of an email, keyed by lower-case name."""
    found = (raw or {}).get("headers")
    if not isinstance(found, dict):
        return {}
    return {name.lower(): str(value) for name, value in found.items()}


def _texts(value: Any) -> Iterator[str]:
    """Yield every text in JSON data, keys included. (In encoded JSON a NUL would be escaped.)"""
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
    """Raise InvalidMessage unless the text is non-empty, storable and not too long."""
    if not text.strip():
        raise InvalidMessage("the message is empty", hint="write some text")
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
            f"{what} has {size:,} bytes; the limit is {MAX_MESSAGE_BYTES:,}",
            hint="send the long part as a file, or in pieces",
        )


@dataclass(frozen=True, slots=True)
class InboxItem:
    """An accepted message: stored, committed and waiting to be routed."""

    request: RequestContext
    text: str
    tier: PolicyTier
    reply_to: str | None = None
    attachments: tuple[Attachment, ...] = ()
    part: str | None = None  # the butler of this part, if the message was split


_COMMAND = re.compile(r"/(?P<word>[a-z]+)(?:@\S+)?(?:\s+(?P<rest>.*))?", re.IGNORECASE | re.DOTALL)


# "yes", "no" or "undo" and the code of an action
_ANSWER = re.compile(r"(?:yes|no|undo)\s+[0-9a-f]{6}", re.IGNORECASE)


class Word(StrEnum):
    STOP = "stop"  # end every running session
    PAUSE = "pause"  # start none until it is resumed, or for as long as it says
    RESUME = "resume"
    STATUS = "status"
    RETRY = "retry"  # try again what waits for the owner
    YES = "yes"  # approve the waiting action with this code
    NO = "no"  # reject it
    UNDO = "undo"  # undo the approved action with this code


@dataclass(frozen=True, slots=True)
class Command:
    word: Word
    rest: str = ""

    @property
    def lane(self) -> str:
        """Queue lane: a stop waits for nothing; the other commands run in order."""
        return "stop" if self.word is Word.STOP else "others"


def parse_command(text: str) -> Command | None:
    """Return the command in a text such as "/pause 2h" or "yes 3f2a91"; None if it is not exactly one."""
    text = text.strip()
    found = _COMMAND.fullmatch(f"/{text}" if _ANSWER.fullmatch(text) else text)
    if found is None or found["word"].lower() not in list(Word):
        return None
    return Command(Word(found["word"].lower()), (found["rest"] or "").strip())


BY_RULE = "rule"  # a rule of the owner decided
FALLBACK_RULE = "fallback"
CONTRACT = 1  # version of the route envelope


@dataclass(frozen=True, slots=True)
class RouteDecision:
    target: str
    rule: str  # step of triage that decided: rule, reflex, affinity, trigger, classified, fallback
    reason: str
    part: str | None = None  # text for this butler if the message was split; None: all of it
    after_previous: bool = False  # wait until the previous part has ended
    __pydantic_config__ = STRICT


@dataclass(frozen=True, slots=True)
class Turn:
    """One recent message of the same conversation."""

    speaker: Literal["person", "assistant"]
    text: str
    at: datetime
    __pydantic_config__ = STRICT


@dataclass(frozen=True, slots=True)
class RouteRequest:
    request: RequestContext
    target: str
    text: str
    decision: RouteDecision
    conversation: tuple[Turn, ...] = ()
    attachments: tuple[Attachment, ...] = ()
    report: bool = False  # the Switchboard waits for a report of how it ended
    hint: str | None = None  # added to the answer if no reflex matches and there is no model
    reactions: bool | None = None  # the channel of the message shows them; None: not told
    schema_version: Literal["route.v1"] = "route.v1"
    __pydantic_config__ = STRICT
