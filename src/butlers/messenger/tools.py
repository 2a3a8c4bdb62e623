"""The Messenger's tools: accept and inspect deliveries, decide what waits for approval."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import Field

from butlers.domain.caller import OWNER_ONLY, PEERS
from butlers.domain.delivery import DeliveryRequest, DeliveryState
from butlers.domain.errors import NotAllowed, NotFound
from butlers.domain.queues import SWITCHBOARD
from butlers.messenger import approvals, deliveries, delivery_intake
from butlers.messenger.approvals import Decision
from butlers.messenger.limits import DeliveryLimits
from butlers.messenger.policy import DeliveryPolicy
from butlers.tools.context import CallContext
from butlers.tools.declaration import Effect, tool

_DECISIONS = {"approve": Decision.APPROVED, "reject": Decision.REJECTED}


@tool(callers=PEERS)
async def deliver(ctx: CallContext, delivery: DeliveryRequest) -> dict[str, Any]:
    """Accept a delivery. It is stored before this answers, and sent after."""
    if ctx.caller.name != SWITCHBOARD:
        raise NotAllowed(f"only the Switchboard hands over deliveries, not {ctx.caller.name}")
    delivery_id = await delivery_intake.accept_delivery(
        ctx.connection, delivery, ctx.service(DeliveryPolicy), ctx.clock.now()
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


@tool(callers=OWNER_ONLY, effect=Effect.READ)
async def approvals_list(
    ctx: CallContext,
    include_decided: bool = False,
    limit: Annotated[int, Field(ge=1, le=500)] = 50,
) -> dict[str, Any]:
    """List what waits for your approval, newest first; optionally the decided and expired ones too."""
    found = await approvals.list_actions(ctx.connection, only_open=not include_decided, limit=limit)
    now = ctx.clock.now()
    return {
        "approvals": [
            {**asdict(action), "state": action.decision or _open_state(action.expires_at <= now)}
            for action in found
        ]
    }


@tool(callers=OWNER_ONLY)
async def approvals_decide(
    ctx: CallContext,
    id: UUID,  # noqa: A002  (the name its callers know)
    decision: Literal["approve", "reject"],
) -> dict[str, Any]:
    """Approve or reject one. An approved delivery is queued when this answers."""
    sent = await approvals.decide(
        ctx.connection,
        id,
        _DECISIONS[decision],
        ctx.caller.name,
        ctx.service(DeliveryPolicy),
        ctx.clock.now(),
    )
    return {
        "id": str(id),
        "decision": str(_DECISIONS[decision]),
        "deliveries": [str(delivery_id) for delivery_id in sent],
    }


def _open_state(expired: bool) -> str:
    return str(Decision.EXPIRED) if expired else "open"


TOOLS = (
    deliver,
    deliveries_list,
    deliveries_get,
    deliveries_resend,
    messenger_status,
    delivery_origin,
    approvals_list,
    approvals_decide,
)
