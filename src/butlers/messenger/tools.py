"""The Messenger's own tools: deliveries in, how they are, and the mailbox that consoles read."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from pydantic import Field

from butlers.domain.caller import OWNER_ONLY, PEERS
from butlers.domain.delivery import DeliveryRequest, DeliveryState
from butlers.domain.errors import NotAllowed, NotFound
from butlers.domain.queues import SWITCHBOARD
from butlers.messenger import deliveries, delivery_attempts
from butlers.messenger import delivery_intake as desk
from butlers.messenger.terms import Terms
from butlers.messenger.traffic import Traffic
from butlers.tools.declaration import Effect, tool
from butlers.tools.context import CallContext


@tool(callers=PEERS)
async def deliver(ctx: CallContext, delivery: DeliveryRequest) -> dict[str, Any]:
    """Take a delivery. It is written down before this answers, and sent after."""
    if ctx.caller.name != SWITCHBOARD:
        raise NotAllowed(f"only the Switchboard hands over deliveries, not {ctx.caller.name}")
    terms = ctx.service(Terms)
    delivery_id = await desk.accept_delivery(ctx.connection, delivery, terms, ctx.clock.now())
    return {"status": "accepted", "delivery_id": str(delivery_id)}


@tool(callers=OWNER_ONLY, effect=Effect.READ)
async def deliveries_list(
    ctx: CallContext,
    state: DeliveryState | None = None,
    limit: Annotated[int, Field(ge=1, le=500)] = 50,
    offset: Annotated[int, Field(ge=0, le=1_000_000)] = 0,
) -> dict[str, Any]:
    """Deliveries, newest first: to whom, in which state and why, how many attempts."""
    return {"deliveries": await deliveries.list_deliveries(ctx.connection, state, limit, offset)}


@tool(callers=OWNER_ONLY, effect=Effect.READ)
async def deliveries_get(
    ctx: CallContext,
    id: UUID,  # noqa: A002  (the name its callers know)
) -> dict[str, Any]:
    """One delivery in full, with each attempt."""
    found = await deliveries.get_delivery(ctx.connection, id)
    if found is None:
        raise NotFound(f"there is no delivery {id}", hint="`butlers deliveries list` shows them")
    return {**found, "attempts": await delivery_attempts.attempts_of(ctx.connection, id)}


@tool(callers=OWNER_ONLY)
async def deliveries_resend(
    ctx: CallContext,
    id: UUID,  # noqa: A002
) -> dict[str, Any]:
    """Send once more what did not arrive, or may not have. Only the owner can know that it is wanted."""
    await desk.resend(ctx.connection, id, ctx.service(Terms), ctx.clock.now())
    return {"id": str(id), "status": "accepted"}


@tool(callers=OWNER_ONLY, effect=Effect.READ)
async def messenger_status(ctx: CallContext) -> dict[str, Any]:
    """Each line to the outside (breaker, pause, rate), and how many deliveries wait or failed."""
    return {
        "deliveries": await deliveries.count_states(ctx.connection),
        **ctx.service(Traffic).describe(),
    }


@tool(callers=PEERS, effect=Effect.READ)
async def delivery_origin(
    ctx: CallContext, channel: str, provider_message_id: str
) -> dict[str, Any]:
    """Which butler a message of ours came from, by the platform's id of it; null where it is not ours."""
    return {"origin": await deliveries.origin_of(ctx.connection, channel, provider_message_id)}


TOOLS = (
    deliver,
    deliveries_list,
    deliveries_get,
    deliveries_resend,
    messenger_status,
    delivery_origin,
)
