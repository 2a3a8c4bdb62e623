"""The Switchboard's own tools: the one door in, the registry, and the way to the Messenger."""

from __future__ import annotations

from typing import Any, Literal

from butlers.domain.caller import OWNER_ONLY, PEERS, CallerKind
from butlers.domain.delivery import DeliveryRequest
from butlers.domain.errors import InvalidArguments, NotAllowed, NotFound
from butlers.domain.message import (
    Control,
    Event,
    InboundEnvelope,
    Payload,
    Sender,
    Source,
    check_storable,
)
from butlers.domain.registration import Registration
from butlers.domain.route import RouteDecision
from butlers.ingest.accept import INBOX, accept
from butlers.routing.deliver import DELIVERIES
from butlers.store import queue
from butlers.store.inbox import store_decision
from butlers.store.registry import list_registrations, list_states
from butlers.store.registry import register as store_registration
from butlers.tools.base import Effect, tool
from butlers.tools.context import CallContext
from butlers.wire.codec import encode

LONGEST_REASON = 300


@tool(callers=frozenset({CallerKind.OWNER}))
async def ingest(
    ctx: CallContext,
    schema_version: Literal["ingest.v1"],
    source: Source,
    event: Event,
    sender: Sender,
    payload: Payload,
    control: Control | None = None,
) -> dict[str, Any]:
    """Take one message in. It is stored and committed before this answers; a repeat is a duplicate."""
    envelope = InboundEnvelope(source, event, sender, payload, control or Control(), schema_version)
    capacity = ctx.services.config.buffer.queue_capacity
    accepted = await accept(ctx.connection, envelope, ctx.clock, capacity=capacity)
    return {
        "request_id": str(accepted.request_id),
        "status": accepted.status,
        "duplicate": accepted.duplicate,
    }


@tool(callers=PEERS)
async def register(ctx: CallContext, registration: Registration) -> dict[str, Any]:
    """Make a butler known, or say that it is still there."""
    if registration.name != ctx.caller.name:
        raise NotAllowed(f"{ctx.caller.name} can not register {registration.name}")
    await store_registration(ctx.connection, registration)
    for waiting in (INBOX, DELIVERIES):
        await queue.hurry(ctx.connection, waiting)
    return {"status": "registered"}


@tool(callers=frozenset({CallerKind.SESSION}))
async def assign(ctx: CallContext, butler: str, reason: str) -> dict[str, Any]:
    """Say which butler the message of this session is for, and in a few words why."""
    if ctx.request is None:
        raise InvalidArguments("there is no message to assign")
    check_storable("the reason", [reason])
    known = {one.name: one for one in await list_registrations(ctx.connection)}
    if butler not in known or known[butler].infrastructure:
        names = ", ".join(name for name, one in known.items() if not one.infrastructure)
        raise NotFound(f"there is no butler {butler!r} to take it", hint=f"butlers: {names}")
    decision = RouteDecision(butler, "classified", reason[:LONGEST_REASON])
    kept = await store_decision(ctx.connection, ctx.request.request_id, decision)
    return {"butler": kept.target}


@tool(callers=OWNER_ONLY, effect=Effect.READ)
async def registry_list(ctx: CallContext) -> dict[str, Any]:
    """The butlers that have registered: active, stale (not heard of for one time to live) or quarantined
    (for two). A message for one that is away waits for it."""
    return {"butlers": await list_states(ctx.connection)}


@tool(callers=PEERS)
async def deliver(ctx: CallContext, delivery: DeliveryRequest) -> dict[str, Any]:
    """Take a delivery for the Messenger. It is stored before this answers."""
    if delivery.origin != ctx.caller.name:
        raise NotAllowed(f"{ctx.caller.name} can not deliver in the name of {delivery.origin}")
    created = await queue.enqueue(
        ctx.connection, DELIVERIES, delivery.idempotency_key, encode(delivery)
    )
    return {"status": "accepted", "duplicate": not created}


TOOLS = (ingest, register, assign, registry_list, deliver)
