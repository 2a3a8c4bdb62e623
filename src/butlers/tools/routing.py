"""What every butler takes from the Switchboard, and gives back to it."""

from __future__ import annotations

from typing import Any

from butlers.domain.caller import PEERS, SESSIONS
from butlers.domain.delivery import DeliveryRequest, Intent
from butlers.domain.errors import InvalidArguments, NotAllowed
from butlers.domain.ids import uuid7
from butlers.domain.message import Channel, check_storable, check_text
from butlers.domain.route import RouteRequest
from butlers.routing.notify import SWITCHBOARD, queue_delivery, queue_reply
from butlers.routing.routes import accept_route
from butlers.tools.base import tool
from butlers.tools.context import CallContext


@tool(callers=PEERS, name="route.execute", aliases=("route_execute",))
async def route_execute(ctx: CallContext, route: RouteRequest) -> dict[str, Any]:
    """Take a routed message. It is stored before this answers, and worked on after."""
    if ctx.caller.name != SWITCHBOARD:
        raise NotAllowed(f"only the Switchboard routes messages, not {ctx.caller.name}")
    if route.target != ctx.butler:
        raise InvalidArguments(f"this is {ctx.butler}, the route is for {route.target}")
    created = await accept_route(ctx.connection, route)
    return {"status": "accepted", "duplicate": not created}


@tool(callers=SESSIONS)
async def notify(
    ctx: CallContext,
    message: str,
    intent: Intent = Intent.SEND,
    channel: str | None = None,
    recipient: str | None = None,
) -> dict[str, Any]:
    """Say something to the person.

    intent "reply" answers the message this session was started for, where it came from.
    intent "send" starts a new message; channel and recipient default to the owner's console.
    """
    check_text(message)
    check_storable("the address", [channel or "", recipient or ""])
    ordinal = ctx.key.ordinal if ctx.key else 0
    if intent is Intent.REPLY:
        if ctx.request is None:
            raise InvalidArguments(
                "there is no message to reply to", hint='use intent "send" with a channel'
            )
        delivery_id = await queue_reply(ctx.connection, ctx.butler, ctx.request, message, ordinal)
    else:
        delivery_id = await queue_delivery(
            ctx.connection,
            DeliveryRequest(
                delivery_id=uuid7(),
                origin=ctx.butler,
                intent=intent,
                channel=channel or Channel.CONSOLE,
                target=recipient or "console:owner",
                message=message,
                request_id=ctx.key.request_id if ctx.key else None,
                ordinal=ordinal,
            ),
        )
    return {"status": "accepted", "delivery_id": str(delivery_id)}


TOOLS = (route_execute, notify)
