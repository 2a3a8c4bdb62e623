"""The console channel: its registration, and the tools with which a console reads its mailbox."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import Annotated, Any
from uuid import UUID

from pydantic import Field

from butlers.channels.base import Channel, ChannelCheck, ChannelSender, OutboundContext
from butlers.channels.console import mailbox
from butlers.channels.console.mailbox import MAILBOX, ConsoleSender, Mail
from butlers.domain.caller import OWNER_ONLY
from butlers.domain.delivery import OWNERS_CONSOLE
from butlers.domain.message import CONSOLE
from butlers.tools.context import CallContext
from butlers.tools.declaration import Effect, tool


@tool(callers=OWNER_ONLY, effect=Effect.LOOK)
async def console_receive(
    ctx: CallContext,
    target: str = OWNERS_CONSOLE,
    request_id: UUID | None = None,
    wait_s: Annotated[float, Field(ge=0, le=25)] = 0,
) -> dict[str, Any]:
    """Return mail that no console has shown yet, of one request or all; wait up to wait_s for the first."""
    deadline = asyncio.get_running_loop().time() + wait_s
    posted = asyncio.Event()
    with ctx.services.listener.wakes(MAILBOX, posted):
        while True:
            posted.clear()
            async with ctx.services.database.transaction() as connection:
                found = await mailbox.waiting_mail(connection, target, request_id)
            left = deadline - asyncio.get_running_loop().time()
            if found or left <= 0:
                return {"mail": [_as_json(mail) for mail in found]}
            try:
                await asyncio.wait_for(posted.wait(), left)
            except TimeoutError:
                return {"mail": []}


@tool(callers=OWNER_ONLY)
async def console_shown(ctx: CallContext, delivery_ids: list[UUID]) -> dict[str, Any]:
    """Mark mail as shown by a console, so that it is not returned again."""
    return {"shown": await mailbox.mark_shown(ctx.connection, delivery_ids)}


def _as_json(mail: Mail) -> dict[str, Any]:
    return {
        "delivery_id": str(mail.delivery_id),
        "request_id": str(mail.request_id) if mail.request_id else None,
        "origin": mail.origin,
        "message": mail.message,
        "posted_at": mail.posted_at.isoformat(),
    }


class ConsoleChannel(Channel):
    name = CONSOLE
    shows_reactions = True
    always_on = True
    tools = (console_receive, console_shown)
    retention = mailbox.RETENTION

    def sender(self, config: Any, context: OutboundContext) -> ChannelSender:
        return ConsoleSender(context.database, context.clock)

    def check(
        self, outbound: Any, inbound: Any, secrets: Collection[str] | None
    ) -> Sequence[ChannelCheck]:
        return [ChannelCheck("console", "ok", "`butlers send` and `butlers mail`")]


CHANNEL = ConsoleChannel()
