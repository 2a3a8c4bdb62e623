"""The tool that lists a butler's reflexes: what it answers without a model."""

from __future__ import annotations

from typing import Any

from butlers.domain.caller import OWNER_AND_PEERS
from butlers.tools.context import CallContext
from butlers.tools.declaration import Effect, tool


@tool(callers=OWNER_AND_PEERS, effect=Effect.LOOK)
async def reflex_list(ctx: CallContext) -> dict[str, Any]:
    """List the messages that this butler answers without a model: reflexes with their examples."""
    config = ctx.services.config
    known = ctx.services.reflexes.reflexes if config.skills.reflexes else ()
    reflexes = [
        {"skill": one.skill, "name": one.name, "examples": list(one.examples)} for one in known
    ]
    return {"description": config.description, "reflexes": reflexes}


TOOLS = (reflex_list,)
