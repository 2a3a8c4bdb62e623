"""Accepting a message: checked, deduplicated, stored and queued in one transaction."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from butlers.domain.clock import Clock
from butlers.domain.errors import QueueFull
from butlers.domain.ids import uuid7
from butlers.domain.message import InboundEnvelope, InboxItem
from butlers.domain.request import RequestContext
from butlers.domain.trace import TraceContext, current_trace
from butlers.store import inbox, queue
from butlers.store.database import Connection
from butlers.wire.codec import encode

INBOX = "inbox"


@dataclass(frozen=True, slots=True)
class Accepted:
    request_id: UUID
    duplicate: bool
    status: str = "accepted"


async def accept(
    connection: Connection, envelope: InboundEnvelope, clock: Clock, *, capacity: int
) -> Accepted:
    """Keep a new message, or say that it is known. Beyond the capacity a new one is sent away for now."""
    envelope.check()
    trace = current_trace() or TraceContext.new()
    request = RequestContext(
        request_id=uuid7(),
        received_at=clock.now(),
        source_channel=envelope.source.channel,
        source_endpoint_identity=envelope.source.endpoint_identity,
        source_sender_identity=envelope.sender.identity,
        source_thread_identity=envelope.event.external_thread_id,
        trace_id=envelope.control.trace_id or trace.trace_id,
    )
    known = await inbox.store_message(connection, request, envelope)
    if known is not None:
        return Accepted(known, duplicate=True)
    if await queue.is_full(connection, INBOX, capacity):
        raise QueueFull(f"{capacity} messages wait to be routed already")
    tier = envelope.control.policy_tier
    item = InboxItem(request, envelope.payload.normalized_text, tier)
    await queue.enqueue(
        connection, INBOX, str(request.request_id), encode(item), priority=tier.rank
    )
    return Accepted(request.request_id, duplicate=False)
