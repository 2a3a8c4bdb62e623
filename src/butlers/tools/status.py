"""Identity and health."""

from __future__ import annotations

from typing import Any

from butlers.domain.caller import EVERYONE
from butlers.tools.base import Effect, tool
from butlers.tools.context import CallContext


@tool(callers=EVERYONE, effect=Effect.LOOK)
async def status(ctx: CallContext) -> dict[str, Any]:
    """Who this butler is and how it is: name, description, modules, health, uptime, queue depth."""
    return await ctx.services.status()


TOOLS = (status,)
