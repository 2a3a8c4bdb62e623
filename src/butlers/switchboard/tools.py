"""The Switchboard's own tools: the one door in, the registry, and the way to the Messenger."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any, Literal
from uuid import UUID

from butlers.domain.caller import OWNER_ONLY, PEERS, CallerKind
from butlers.domain.delivery import DeliveryRequest
from butlers.domain.errors import InvalidArguments, NotAllowed, NotFound
from butlers.domain.links import links_from
from butlers.domain.message import (
    Control,
    Event,
    InboundEnvelope,
    Payload,
    Sender,
    Source,
    check_storable,
)
from butlers.domain.queues import DELIVERIES, INBOX
from butlers.domain.registration import Registration
from butlers.domain.route import RouteDecision
from butlers.queue import leased_queue as queue
from butlers.queue.pause import lock_pause, read_pause
from butlers.switchboard import conversation, decisions
from butlers.switchboard.inbound import InboundService
from butlers.switchboard.ingest import Accepted
from butlers.switchboard.registry import forget, list_registrations, list_states
from butlers.switchboard.registry import register as store_registration
from butlers.switchboard.triage import candidates
from butlers.tools.base import Effect, tool
from butlers.tools.context import CallContext
from butlers.wire.codec import encode

LONGEST_REASON = 300


def _count_misuse(ctx: CallContext, arguments: dict[str, Any], why: str) -> None:
    ctx.service(InboundService).refuse(arguments, why)


@tool(callers=frozenset({CallerKind.OWNER}), misused=_count_misuse)
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
    return as_answer(await ctx.service(InboundService).accept(ctx.connection, envelope))


def as_answer(accepted: Accepted) -> dict[str, Any]:
    return {
        "request_id": str(accepted.request_id),
        "status": str(accepted.state),
        "duplicate": accepted.duplicate,
        "triage_target": accepted.target,
    }


@tool(callers=PEERS)
async def register(
    ctx: CallContext, registration: Registration, back: bool = True
) -> dict[str, Any]:
    """Make a butler known, or say that it is still there. One that is back finds what waited for it."""
    if registration.name != ctx.caller.name:
        raise NotAllowed(f"{ctx.caller.name} can not register {registration.name}")
    # Whoever is not asked to pause because it is not known yet reads here that there is a pause.
    await lock_pause(ctx.connection, shared=True)
    moved = await store_registration(ctx.connection, registration)
    for waiting in (INBOX, DELIVERIES) if back or moved else ():
        await queue.make_due(ctx.connection, waiting)
    paused = await read_pause(ctx.connection, ctx.clock.now())
    return {"status": "registered", "pause": encode(paused) if paused else None}


@tool(callers=frozenset({CallerKind.SESSION}))
async def assign(
    ctx: CallContext,
    butler: str,
    reason: str,
    part: str | None = None,
    after_previous: bool = False,
) -> dict[str, Any]:
    """Say which butler the message of this session is for, and in a few words why.

    Where it is for several, call this once for each, with that butler's part of it.
    """
    if ctx.request is None:
        raise InvalidArguments("there is no message to assign")
    check_storable("the reason and the part", [reason, part or ""])
    names = [one.name for one in candidates(await list_registrations(ctx.connection))]
    if butler not in names:
        raise NotFound(
            f"there is no butler {butler!r} to take it", hint=f"butlers: {', '.join(names)}"
        )
    decision = RouteDecision(
        butler, "classified", reason[:LONGEST_REASON], (part or "").strip() or None, after_previous
    )
    added = await decisions.propose(ctx.connection, ctx.request.request_id, decision)
    return {"butler": butler, "added": added}


@tool(callers=PEERS)
async def route_ended(ctx: CallContext, request_id: UUID, well: bool) -> dict[str, Any]:
    """How a butler's part of a message ended. What waited for it goes on."""
    if not await decisions.mark_ended(ctx.connection, request_id, ctx.caller.name, well=well):
        raise NotFound(f"{ctx.caller.name} has no part of the message {request_id}")
    await queue.make_due(ctx.connection, INBOX)
    return {"status": "noted"}


@tool(callers=OWNER_ONLY, effect=Effect.READ)
async def registry_list(ctx: CallContext) -> dict[str, Any]:
    """The butlers that have registered: active, stale (not heard of for one time to live) or quarantined
    (for two). A message for one that is away waits for it."""
    return {"butlers": await list_states(ctx.connection)}


@tool(callers=OWNER_ONLY)
async def registry_forget(ctx: CallContext, name: str) -> dict[str, Any]:
    """Forget a butler that is gone for good. What waits for it alone is decided again."""
    if not await forget(ctx.connection, name):
        known = [one.name for one in await list_registrations(ctx.connection)]
        raise NotFound(f"no butler {name!r} has registered", hint=f"butlers: {', '.join(known)}")
    reopened = await decisions.reopen(ctx.connection, name)
    await queue.make_due(ctx.connection, INBOX)
    return {"butler": name, "reopened": reopened}


@tool(callers=PEERS)
async def deliver(ctx: CallContext, delivery: DeliveryRequest) -> dict[str, Any]:
    """Take a delivery for the Messenger. It is stored before this answers."""
    if delivery.origin != ctx.caller.name:
        raise NotAllowed(f"{ctx.caller.name} can not deliver in the name of {delivery.origin}")
    delivery = await _stamped(ctx, delivery)
    key = delivery.idempotency_key
    created = await queue.enqueue(
        ctx.connection, DELIVERIES, key, encode(delivery), lane=delivery.lane
    )
    if created:
        await conversation.keep_said(ctx.connection, delivery)
    return {"status": "accepted", "duplicate": not created}


async def _stamped(ctx: CallContext, delivery: DeliveryRequest) -> DeliveryRequest:
    """With the links that lead where somebody else in the conversation pointed: whoever is answered has not
    sent them, and a chat program opens them unasked. Those of the sender are no news to the sender."""
    if delivery.request_id is None:
        return delivery
    reach = timedelta(minutes=ctx.services.config.triage.history_minutes)
    others = await conversation.words_of_others(ctx.connection, delivery.request_id, reach)
    found = (*delivery.outside_links, *links_from(delivery.message, others))
    return replace(delivery, outside_links=tuple(dict.fromkeys(found)))


TOOLS = (ingest, register, assign, route_ended, registry_list, registry_forget, deliver)
