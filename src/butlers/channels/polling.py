"""The loop of every connector that fetches: ask the source, hand each message in, and only then move on.

The checkpoint moves when the Switchboard has accepted, never before: killed anywhere, the connector asks
again for what it was not sure of, and the Switchboard knows what it has. A message that is refused for good
is handed in once more as nothing but the note that it came, so that it neither blocks those behind it nor
vanishes. One of a stranger for which there is no room stays at the source: those behind it come in, the
checkpoint stays before it, and from there everything is asked for again when there may be room.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol
from uuid import UUID

import structlog

from butlers.domain import tasks
from butlers.domain.clock import Clock, SystemClock
from butlers.domain.connector import ConnectorState, Counters, Heartbeat
from butlers.domain.errors import (
    ButlersError,
    InternalError,
    InvalidArguments,
    InvalidMessage,
    PeerFailed,
    TooManyStrangers,
)
from butlers.domain.ids import uuid7
from butlers.domain.message import Control, InboundEnvelope, IngestionTier, Payload
from butlers.wire.client import McpClient
from butlers.wire.codec import encode

log = structlog.get_logger()

HEARTBEAT_S = 20.0
FIRST_RETRY_S, LAST_RETRY_S = 0.2, 30.0
# Whether there is room for strangers now; all that came since is fetched again.
COME_AGAIN_S = 600.0


@dataclass(frozen=True, slots=True)
class Arrival:
    """One message of a source, and where in the source one is behind it."""

    envelope: InboundEnvelope
    cursor: dict[str, Any]


class Source(Protocol):
    @property
    def kind(self) -> str: ...

    @property
    def endpoint(self) -> str: ...

    async def poll(self, cursor: dict[str, Any] | None) -> Sequence[Arrival]:
        """What came after the cursor, in order; may wait for it. None: from where a new one begins. What is
        behind the checkpoint can be asked for again."""


@dataclass
class _Left:
    """What there was no room for."""

    cursor: dict[str, Any] | None  # before the first of them
    since: float
    why: str
    senders: set[str] = field(default_factory=set)


@dataclass
class PollingConnector:
    source: Source
    switchboard: McpClient
    clock: Clock = field(default_factory=SystemClock)
    instance_id: UUID = field(default_factory=uuid7)
    counters: Counters = field(default_factory=Counters)
    error: str | None = None

    def __post_init__(self) -> None:
        self._began = self.clock.monotonic()
        self._left: _Left | None = None

    async def run(self) -> None:
        """Until it is cancelled. Another instance that takes over ends it with an error."""
        await self._until_it_works(self.beat)
        beating = asyncio.create_task(self._beat_forever())
        try:
            cursor = await self._until_it_works(self.checkpoint)
            while True:
                cursor = await self._until_it_works(partial(self.step, cursor))
        finally:
            await tasks.end(beating)

    async def checkpoint(self) -> dict[str, Any] | None:
        where = {"kind": self.source.kind, "endpoint": self.source.endpoint}
        answer = await self.switchboard.call("connector_checkpoint", where)
        cursor: dict[str, Any] | None = answer["cursor"]
        return cursor

    async def step(self, cursor: dict[str, Any] | None) -> dict[str, Any] | None:
        """Ask the source once and hand in what it has; the cursor from which to ask on."""
        if self._left and self.clock.monotonic() - self._left.since >= COME_AGAIN_S:
            # Alone in its step: whatever fails after it is tried again from there.
            left, self._left = self._left, None
            return left.cursor
        self._count(source_api_calls=1)
        for arrival in await self.source.poll(cursor):
            await self._hand_in_or_leave(arrival.envelope, cursor)
            cursor = arrival.cursor
            if self._left is None:
                await self._advance(cursor)
        self.error = self._left.why if self._left else None
        return cursor

    async def _hand_in_or_leave(
        self, envelope: InboundEnvelope, before: dict[str, Any] | None
    ) -> None:
        sender = envelope.sender.identity
        if self._left and sender in self._left.senders:
            return  # behind the sender's own one that was left, to keep their order
        try:
            await self._hand_in(envelope)
        except TooManyStrangers as error:
            if envelope.dedupe_key is None:
                raise  # nobody would know those behind it again
            self._left = self._left or _Left(before, self.clock.monotonic(), error.message)
            self._left.senders.add(sender)
            log.warning("a message was left", source=self.source.kind, error=error.message)

    async def beat(self) -> None:
        state = ConnectorState.DEGRADED if self.error else ConnectorState.HEALTHY
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
        await self.switchboard.call("connector_heartbeat", {"heartbeat": encode(beat)})

    async def _hand_in(self, envelope: InboundEnvelope) -> None:
        try:
            answer = await self.switchboard.call("ingest", encode(envelope))
        except ButlersError as error:
            if error.retryable or not isinstance(error, (InvalidMessage, InvalidArguments)):
                raise
            self._count(messages_failed=1)
            log.warning("a message was refused", source=self.source.kind, error=error.message)
            answer = await self.switchboard.call("ingest", encode(_note_of(envelope)))
        if not isinstance(answer, dict) or "request_id" not in answer:
            raise PeerFailed("the Switchboard did not say that it has the message")
        repeated = bool(answer["duplicate"])
        self._count(messages_ingested=int(not repeated), dedupe_accepted=int(repeated))

    async def _advance(self, cursor: dict[str, Any]) -> None:
        await self.switchboard.call(
            "connector_advance",
            {
                "kind": self.source.kind,
                "endpoint": self.source.endpoint,
                "instance_id": str(self.instance_id),
                "cursor": cursor,
            },
        )
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
                log.warning("no heartbeat", source=self.source.kind, error=error.message)

    async def _until_it_works(self, work: Any) -> Any:
        delay = FIRST_RETRY_S
        while True:
            try:
                return await work()
            except ButlersError as error:
                if not error.retryable and not isinstance(error, InternalError):
                    raise
                self.error = error.message
                log.warning("trying again", source=self.source.kind, error=error.message)
            await asyncio.sleep(delay)
            delay = min(delay * 2, LAST_RETRY_S)


def _note_of(envelope: InboundEnvelope) -> InboundEnvelope:
    """That it came, under the same name, so that a second try is still the same message."""
    control = Control(
        idempotency_key=envelope.control.idempotency_key,
        policy_tier=envelope.control.policy_tier,
        ingestion_tier=IngestionTier.METADATA,
    )
    return replace(envelope, payload=Payload(normalized_text=""), control=control)
