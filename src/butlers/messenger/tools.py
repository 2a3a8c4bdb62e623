"""The Messenger's tools: accept, inspect, release and resend deliveries."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from pydantic import Field

from butlers.domain.caller import OWNER_ONLY, PEERS
from butlers.domain.delivery import DeliveryRequest, DeliveryState
from butlers.domain.errors import NotAllowed, NotFound
from butlers.domain.queues import SWITCHBOARD
from butlers.messenger import approvals, deliveries, delivery_intake
from butlers.messenger.limits import DeliveryLimits
from butlers.messenger.policy import DeliveryPolicy
from butlers.tools.context import CallContext
from butlers.tools.declaration import Effect, tool
from butlers.tools.gate import NOT_DECIDED, CallGate


@tool(callers=PEERS)
async def deliver(ctx: CallContext, delivery: DeliveryRequest) -> dict[str, Any]:
    """Accept a delivery. It is stored before this answers, and sent after."""
    if ctx.caller.name != SWITCHBOARD:
        raise NotAllowed(f"only the Switchboard hands over deliveries, not {ctx.caller.name}")
    delivery_id = await delivery_intake.accept_delivery(
        ctx.connection,
        delivery,
        ctx.service(DeliveryPolicy),
        ctx.clock.now(),
        ctx.services.find(CallGate),
    )
    return {"status": "accepted", "delivery_id": str(delivery_id)}


@tool(callers=OWNER_ONLY, effect=Effect.READ)
async def deliveries_list(
    ctx: CallContext,
    state: DeliveryState | None = None,
    limit: Annotated[int, Field(ge=1, le=500)] = 50,
    offset: Annotated[int, Field(ge=0, le=1_000_000)] = 0,
) -> dict[str, Any]:
    """List deliveries, newest first: recipient, state and its reason, number of attempts."""
    return {"deliveries": await deliveries.list_deliveries(ctx.connection, state, limit, offset)}


@tool(callers=OWNER_ONLY, effect=Effect.READ)
async def deliveries_get(
    ctx: CallContext,
    id: UUID,  # noqa: A002  (the name its callers know)
) -> dict[str, Any]:
    """Return one delivery in full, with each attempt."""
    found = await deliveries.get_delivery(ctx.connection, id)
    if found is None:
        raise NotFound(f"there is no delivery {id}", hint="`butlers deliveries list` shows them")
    return {**found, "attempts": await deliveries.attempts_of(ctx.connection, id)}


@tool(callers=OWNER_ONLY)
async def deliveries_resend(
    ctx: CallContext,
    id: UUID,  # noqa: A002
) -> dict[str, Any]:
    """Send a delivery again that did not arrive, or may not have."""
    policy = ctx.service(DeliveryPolicy)
    await delivery_intake.resend(ctx.connection, id, policy, ctx.clock.now())
    return {"id": str(id), "status": "accepted"}


@tool(callers=OWNER_ONLY, effect=Effect.READ)
async def messenger_status(ctx: CallContext) -> dict[str, Any]:
    """Return each line to the outside (breaker, pause, rate) and the number of undelivered deliveries."""
    return {
        "deliveries": await deliveries.count_states(ctx.connection),
        **ctx.service(DeliveryLimits).describe(),
    }


@tool(callers=PEERS, effect=Effect.READ)
async def delivery_origin(
    ctx: CallContext, channel: str, provider_message_id: str
) -> dict[str, Any]:
    """Return the butler that sent a message, by the platform's id of it; null if it is not ours."""
    return {"origin": await deliveries.origin_of(ctx.connection, channel, provider_message_id)}


async def _end_waiting(ctx: CallContext, arguments: dict[str, Any], why: str) -> None:
    """End a delivery whose question was rejected or has expired."""
    state = DeliveryState.EXPIRED if why == NOT_DECIDED else DeliveryState.DISCARDED
    delivery_id = UUID(arguments["delivery_id"])
    await approvals.end_parked(ctx.connection, delivery_id, state, why, ctx.clock.now())


@tool(callers=OWNER_ONLY, on_refused=_end_waiting, unique=("delivery_id", "message"))
async def delivery_release(
    ctx: CallContext,
    delivery_id: UUID,
    channel: str,
    target: str,
    origin: str,
    message: str,
    links: list[str],
    reasons: list[str],
) -> dict[str, Any]:
    """Send a delivery that waits for approval. Approving its question calls this."""
    approved = approvals.ApprovedDelivery(delivery_id, tuple(reasons))
    now = ctx.clock.now()
    released = await approvals.release(ctx.connection, approved, ctx.service(DeliveryPolicy), now)
    return {"delivery_id": str(delivery_id), "released": released}


TOOLS = (
    deliver,
    deliveries_list,
    deliveries_get,
    deliveries_resend,
    messenger_status,
    delivery_origin,
    delivery_release,
)
