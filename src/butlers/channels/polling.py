"""The loop of a connector that polls: fetch messages, hand them to the Switchboard, save the checkpoint.

The checkpoint is saved only after the Switchboard has accepted a message. A connector that is killed fetches
again from its checkpoint, and the Switchboard recognizes duplicates. A message that is refused for good is
handed in once more as metadata only, so that it neither blocks the next ones nor disappears. If the
Switchboard has no room for a message of an unknown sender, the message is skipped: later messages are handed
in, the checkpoint stays before it, and after ``SKIPPED_RETRY_S`` everything is fetched again from there.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol, TypeVar
from uuid import UUID

import structlog

from butlers.channels.base import ConnectorInbox
from butlers.domain import tasks
from butlers.domain.clock import Clock, SystemClock, uuid7
from butlers.domain.errors import (
    ButlersError,
    CredentialRefused,
    InternalError,
    InvalidArguments,
    InvalidMessage,
    PeerFailed,
    TooManyUnknownSenders,
)
from butlers.domain.message import Control, InboundEnvelope, IngestionTier, Payload, joined
from butlers.domain.registration import ConnectorState, Counters, Heartbeat
from butlers.wire.client import McpClient
from butlers.wire.codec import encode

log = structlog.get_logger()

HEARTBEAT_S = 20.0
FIRST_RETRY_S, LAST_RETRY_S = 0.2, 30.0
SKIPPED_RETRY_S = 600.0
PAUSED_RETRY_S = 60.0  # while the platform refuses the credential; the owner may have set a new one

Cursor = dict[str, Any]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PolledMessage:
    """One message of a source and the cursor behind it."""

    envelope: InboundEnvelope
    cursor: Cursor


@dataclass(frozen=True, slots=True)
class PolledHistory:
    """Messages from before the channel was connected, and the cursor behind the last one."""

    envelopes: tuple[InboundEnvelope, ...]
    cursor: Cursor


class PollingSource(Protocol):
    @property
    def kind(self) -> str: ...

    @property
    def endpoint(self) -> str: ...

    async def poll(self, cursor: Cursor | None) -> Sequence[PolledMessage | PolledHistory]:
        """Return the messages after the cursor, in order; may wait for one.

        None: the position at which a new connector starts. The same cursor may be asked for again.
        Raises CredentialRefused if the platform does not accept the credential.
        """


class McpInbox:
    """The Switchboard over MCP, for a connector that runs in a process of its own."""

    def __init__(self, switchboard: McpClient) -> None:
        self._switchboard = switchboard

    async def accept(
        self, envelope: InboundEnvelope, *, counted_as: str | None = None
    ) -> dict[str, Any]:
        answer = await self._switchboard.call("ingest", encode(envelope))
        if not isinstance(answer, dict) or "request_id" not in answer:
            raise PeerFailed("the Switchboard did not confirm that it has the message")
        return answer

    async def accept_history(self, envelopes: Sequence[InboundEnvelope], *, counted_as: str) -> int:
        answers = [await self.accept(envelope) for envelope in envelopes]
        return sum(not answer["duplicate"] for answer in answers)

    async def save_heartbeat(self, heartbeat: Heartbeat) -> None:
        await self._switchboard.call("connector_heartbeat", {"heartbeat": encode(heartbeat)})

    async def read_checkpoint(self, kind: str, endpoint: str) -> Cursor | None:
        where = {"kind": kind, "endpoint": endpoint}
        cursor: Cursor | None = (await self._switchboard.call("connector_checkpoint", where))[
            "cursor"
        ]
        return cursor

    async def save_checkpoint(
        self, kind: str, endpoint: str, instance_id: UUID, cursor: Cursor
    ) -> None:
        await self._switchboard.call(
            "connector_advance",
            {
                "kind": kind,
                "endpoint": endpoint,
                "instance_id": str(instance_id),
                "cursor": cursor,
            },
        )


@dataclass
class _Skipped:
    """Messages for which the Switchboard had no room."""

    cursor: Cursor | None  # before the first of them
    since: float
    reason: str
    senders: set[str] = field(default_factory=set)


@dataclass
class PollingConnector:
    source: PollingSource
    inbox: ConnectorInbox
    clock: Clock = field(default_factory=SystemClock)
    instance_id: UUID = field(default_factory=uuid7)
    counters: Counters = field(default_factory=Counters)
    error: str | None = None
    # Tells the owner something, once per key: key, message (``InboundContext.tell_owner``).
    tell_owner: Callable[[str, str], Awaitable[None]] | None = None
    # Called after each message that was accepted now or before, with the answer of ``ingest``.
    accepted: Callable[[InboundEnvelope, dict[str, Any]], Awaitable[None]] | None = None
    rereads: bool = True  # whether the source can be asked again for messages before a cursor

    def __post_init__(self) -> None:
        self._began = self.clock.monotonic()
        self._skipped: _Skipped | None = None
        self._refused = False  # the platform refuses the credential

    async def run(self) -> None:
        """Run until cancelled. Raises StateConflict when another instance takes over."""
        await self._retry(self.beat)
        beating = asyncio.create_task(self._beat_forever())
        try:
            cursor = await self._retry(self.checkpoint)
            while True:
                cursor = await self._retry(partial(self.step, cursor))
        finally:
            await tasks.end(beating)

    async def checkpoint(self) -> Cursor | None:
        return await self.inbox.read_checkpoint(self.source.kind, self.source.endpoint)

    async def step(self, cursor: Cursor | None) -> Cursor | None:
        """Poll the source once and hand in its messages. Returns the cursor for the next step."""
        if self._skipped and self.clock.monotonic() - self._skipped.since >= SKIPPED_RETRY_S:
            # In a step of its own, so that a failure after it is retried from this cursor.
            skipped, self._skipped = self._skipped, None
            return skipped.cursor
        self._count(source_api_calls=1)
        found = await self.source.poll(cursor)
        self._refused = False
        for message in found:
            if isinstance(message, PolledHistory):
                await self._hand_in_history(message)
            else:
                await self._hand_in_or_skip(message.envelope, cursor)
            cursor = message.cursor
            if self._skipped is None:
                await self._advance(cursor)
        self.error = self._skipped.reason if self._skipped else None
        return cursor

    async def beat(self) -> None:
        """Send one heartbeat."""
        state = ConnectorState.DEGRADED if self.error else ConnectorState.HEALTHY
        state = ConnectorState.ERROR if self._refused else state
        beat = Heartbeat(
            self.source.kind,
            self.source.endpoint,
            self.instance_id,
            self.clock.now(),
            state=state,
            error=self.error,
            uptime_s=self.clock.monotonic() - self._began,
            counters=self.counters,
        )
        await self.inbox.save_heartbeat(beat)

    async def _hand_in_or_skip(self, envelope: InboundEnvelope, before: Cursor | None) -> None:
        sender = envelope.sender.identity
        if self._skipped and sender in self._skipped.senders:
            return  # keeps the order of the sender's messages
        try:
            await self._hand_in(envelope)
        except TooManyUnknownSenders as error:
            if not self.rereads:
                await self._note(envelope, error)
                return
            if envelope.dedupe_key is None:
                raise  # fetched again, the messages behind it would not be recognized as duplicates
            self._skipped = self._skipped or _Skipped(before, self.clock.monotonic(), error.message)
            self._skipped.senders.add(sender)
            log.warning("message skipped for now", source=self.source.kind, error=error.message)

    async def _hand_in_history(self, history: PolledHistory) -> None:
        total = len(history.envelopes)
        new = await self.inbox.accept_history(history.envelopes, counted_as=self.source.endpoint)
        self._count(messages_ingested=new, dedupe_accepted=total - new)

    async def _hand_in(self, envelope: InboundEnvelope) -> None:
        source = self.source.endpoint
        try:
            answer = await self.inbox.accept(envelope, counted_as=source)
        except ButlersError as error:
            if error.retryable or not isinstance(error, (InvalidMessage, InvalidArguments)):
                raise
            answer = await self._note(envelope, error)
        if self.accepted is not None:
            await self.accepted(envelope, answer)
        duplicate = bool(answer["duplicate"])
        self._count(messages_ingested=int(not duplicate), dedupe_accepted=int(duplicate))

    async def _note(self, envelope: InboundEnvelope, error: ButlersError) -> dict[str, Any]:
        """Hand in a refused message without its content, so that it leaves a trace."""
        self._count(messages_failed=1)
        log.warning("message refused", source=self.source.kind, error=error.message)
        noted = _metadata_only(envelope)
        return await self.inbox.accept(noted, counted_as=self.source.endpoint)

    async def _advance(self, cursor: Cursor) -> None:
        source = self.source
        await self.inbox.save_checkpoint(source.kind, source.endpoint, self.instance_id, cursor)
        self._count(checkpoint_saves=1)

    def _count(self, **more: int) -> None:
        summed = {name: getattr(self.counters, name) + number for name, number in more.items()}
        self.counters = replace(self.counters, **summed)

    async def _beat_forever(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            try:
                await self.beat()
            except ButlersError as error:
                log.warning("heartbeat failed", source=self.source.kind, error=error.message)

    async def _retry(self, work: Callable[[], Awaitable[T]]) -> T:
        delay = FIRST_RETRY_S
        while True:
            try:
                return await work()
            except CredentialRefused as error:
                await self._pause(error)
                delay = PAUSED_RETRY_S
            except ButlersError as error:
                if not error.retryable and not isinstance(error, InternalError):
                    raise
                self.error = error.message
                log.warning("connector retries", source=self.source.kind, error=error.message)
            await asyncio.sleep(delay * random.uniform(0.75, 1.25))
            delay = min(delay * 2, LAST_RETRY_S)

    async def _pause(self, error: CredentialRefused) -> None:
        """Report that the credential is refused: to the Switchboard, and to the owner once a day."""
        self.error, self._refused = error.message, True
        log.error("connector paused", source=self.source.kind, error=error.message)
        try:
            await self.beat()
            if self.tell_owner is not None:
                kind, endpoint = self.source.kind, self.source.endpoint
                key = joined("refused", kind, endpoint, str(self.clock.now().date()))
                message = (
                    f"I cannot read {kind} ({endpoint}) any more: {error.message}."
                    f" {error.hint or ''} Until then its messages wait there."
                )
                await self.tell_owner(key, " ".join(message.split()))
        except ButlersError as failed:
            log.warning("pause not reported", source=self.source.kind, error=failed.message)


def _metadata_only(envelope: InboundEnvelope) -> InboundEnvelope:
    """Return the envelope without its content but with the same deduplication key."""
    control = Control(
        idempotency_key=envelope.control.idempotency_key,
        policy_tier=envelope.control.policy_tier,
        ingestion_tier=IngestionTier.METADATA,
    )
    return replace(envelope, payload=Payload(normalized_text=""), control=control)
