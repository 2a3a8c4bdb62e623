"""Tools with which the owner looks at messages: the newest ones, and one conversation as it was spoken."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import Field

from butlers.domain.caller import OWNER_ONLY
from butlers.switchboard import conversation, inbox
from butlers.tools.context import CallContext
from butlers.tools.declaration import Effect, tool

Limit = Annotated[int, Field(ge=1, le=200)]


@tool(callers=OWNER_ONLY, effect=Effect.READ)
async def messages_list(
    ctx: CallContext,
    query: Annotated[str, Field(max_length=200)] = "",
    before: datetime | None = None,
    limit: Limit = 50,
) -> dict[str, Any]:
    """List messages, newest first: sender, channel, text, state and target. For the next page pass the
    received_at of the last one as before."""
    return {"messages": await inbox.list_messages(ctx.connection, query, before, limit)}


@tool(callers=OWNER_ONLY, effect=Effect.READ)
async def conversation_turns(
    ctx: CallContext, channel: str, endpoint: str, before: datetime | None = None, limit: Limit = 50
) -> dict[str, Any]:
    """List what the owner and the assistant said on one endpoint of a channel, oldest first."""
    turns = await conversation.owner_turns(ctx.connection, channel, endpoint, before, limit)
    return {"turns": turns}


TOOLS = (messages_list, conversation_turns)
