"""The Messenger's own tools: deliveries in, and the mailbox that consoles read."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any
from uuid import UUID

from pydantic import Field

from butlers.domain.caller import OWNER_ONLY, PEERS
from butlers.domain.delivery import DeliveryRequest
from butlers.domain.errors import NotAllowed
from butlers.routing.deliver import accept_delivery
from butlers.routing.notify import SWITCHBOARD
from butlers.store import deliveries
from butlers.store.deliveries import MAILBOX, Mail
from butlers.tools.base import Effect, tool
from butlers.tools.context import CallContext


@tool(callers=PEERS)
async def deliver(ctx: CallContext, delivery: DeliveryRequest) -> dict[str, Any]:
    """Take a delivery. It is written down before this answers, and sent after."""
    if ctx.caller.name != SWITCHBOARD:
        raise NotAllowed(f"only the Switchboard hands over deliveries, not {ctx.caller.name}")
    delivery_id = await accept_delivery(ctx.connection, delivery)
    return {"status": "accepted", "delivery_id": str(delivery_id)}


@tool(callers=OWNER_ONLY, effect=Effect.LOOK)
async def console_receive(
    ctx: CallContext,
    target: str = "console:owner",
    request_id: UUID | None = None,
    wait_s: Annotated[float, Field(ge=0, le=25)] = 0,
) -> dict[str, Any]:
    """Mail that no console has shown yet, of one request or all; waits up to wait_s for the first."""
    deadline = asyncio.get_running_loop().time() + wait_s
    posted = asyncio.Event()
    with ctx.services.listener.wakes(MAILBOX, posted):
        while True:
            posted.clear()
            async with ctx.services.database.transaction() as connection:
                found = await deliveries.waiting_mail(connection, target, request_id)
            left = deadline - asyncio.get_running_loop().time()
            if found or left <= 0:
                return {"mail": _listed(found)}
            try:
                await asyncio.wait_for(posted.wait(), left)
            except TimeoutError:
                return {"mail": []}


@tool(callers=OWNER_ONLY)
async def console_shown(ctx: CallContext, delivery_ids: list[UUID]) -> dict[str, Any]:
    """Say that a console has shown these; they are not handed out again."""
    return {"shown": await deliveries.mark_shown(ctx.connection, delivery_ids)}


def _listed(mail: Sequence[Mail]) -> list[dict[str, Any]]:
    return [
        {
            "delivery_id": str(item.delivery_id),
            "request_id": str(item.request_id) if item.request_id else None,
            "origin": item.origin,
            "message": item.message,
            "posted_at": item.posted_at.isoformat(),
        }
        for item in mail
    ]


TOOLS = (deliver, console_receive, console_shown)
