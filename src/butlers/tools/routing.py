"""Tools between a butler and the Switchboard: take a routed message, notify the person."""

from __future__ import annotations

import json
from typing import Any

from butlers.domain.caller import PEERS, SESSIONS
from butlers.domain.clock import uuid7
from butlers.domain.delivery import DeliveryRequest, Intent, check_emoji
from butlers.domain.errors import InvalidArguments, NotAllowed
from butlers.domain.links import links_beyond, links_from
from butlers.domain.message import RequestContext, RouteRequest
from butlers.domain.queues import ROUTES, SWITCHBOARD
from butlers.queue.outbox import queue_delivery, queue_reply, recipient_or_owner
from butlers.queue.queries import find_payload
from butlers.sessions.routes import accept_route
from butlers.tools.context import CallContext
from butlers.tools.declaration import tool


@tool(callers=PEERS, name="route.execute", aliases=("route_execute",))
async def route_execute(ctx: CallContext, route: RouteRequest) -> dict[str, Any]:
    """Accept a routed message. It is stored before this answers, and handled after."""
    if ctx.caller.name != SWITCHBOARD:
        raise NotAllowed(f"only the Switchboard routes messages, not {ctx.caller.name}")
    if route.target != ctx.butler:
        raise InvalidArguments(f"this is {ctx.butler}, the route is for {route.target}")
    created = await accept_route(ctx.connection, route)
    if created:
        await ctx.services.modules.route_accepted(ctx.connection, route)
    return {"status": "accepted", "duplicate": not created}


@tool(callers=SESSIONS)
async def notify(
    ctx: CallContext,
    message: str = "",
    intent: Intent = Intent.SEND,
    channel: str | None = None,
    recipient: str | None = None,
    emoji: str | None = None,
) -> dict[str, Any]:
    """Say something to the person. intent "reply": answer the message of this session; "react": an emoji
    on it; "send": a new message, to the owner unless a recipient is named.
    """
    ordinal = ctx.key.ordinal if ctx.key else 0
    if intent is Intent.SEND:
        channel, recipient = recipient_or_owner(channel, recipient)
        delivery_id = await queue_delivery(
            ctx.connection,
            DeliveryRequest(
                delivery_id=uuid7(),
                origin=ctx.butler,
                intent=intent,
                channel=channel,
                target=recipient,
                message=message,
                request_id=ctx.key.request_id if ctx.key else None,
                ordinal=ordinal,
                emoji=emoji,
                outside_links=await _outside_links(ctx, message),
            ),
        )
    else:
        request = _answerable(ctx, intent)
        if intent is Intent.REACT:
            check_emoji(emoji)
        elif emoji is not None:
            raise InvalidArguments('only intent "react" takes an emoji')
        delivery_id = await queue_reply(
            ctx.connection,
            ctx.butler,
            request,
            message,
            ordinal,
            emoji=emoji,
            outside_links=await _read_links(ctx, message),
        )
    return {"status": "accepted", "delivery_id": str(delivery_id)}


def _answerable(ctx: CallContext, intent: Intent) -> RequestContext:
    if ctx.request is None:
        raise InvalidArguments(
            f"there is no message to {intent} to", hint='use intent "send" with a channel'
        )
    return ctx.request


async def _outside_links(ctx: CallContext, message: str) -> tuple[str, ...]:
    """Return the links in a new message that may come from other people than the owner."""
    if ctx.outside:
        return await _read_links(ctx, message)
    if ctx.request is None or ctx.request.is_owners:
        return ()
    return links_from(message, json.dumps(await _route(ctx, ctx.request), ensure_ascii=False))


async def _read_links(ctx: CallContext, message: str) -> tuple[str, ...]:
    """Return the links that a session may have read in text of other people.

    That text is not stored, so every link counts that is not in the owner's own message.
    """
    if not ctx.outside:
        return ()
    own = ""
    if ctx.request is not None and ctx.request.is_owners:
        own = (await _route(ctx, ctx.request)).get("text", "")
    return links_beyond(message, own)


async def _route(ctx: CallContext, request: RequestContext) -> dict[str, Any]:
    """Return the route of a request as this butler stored it, with the conversation before it."""
    return await find_payload(ctx.connection, ROUTES, str(request.request_id)) or {}


TOOLS = (route_execute, notify)
