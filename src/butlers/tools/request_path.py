"""The way of one request, as this butler knows it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from butlers.domain.caller import OWNER_ONLY
from butlers.tools.base import Effect, tool
from butlers.tools.context import CallContext
from butlers.tools.request_hops import read_path


@tool(callers=OWNER_ONLY, effect=Effect.READ)
async def request_path(ctx: CallContext, request_id: UUID) -> dict[str, Any]:
    """Each hop of a request here: received, queued, sessions, their calls, deliveries."""
    role = str(ctx.services.config.role)
    return {"hops": await read_path(ctx.connection, request_id, role=role)}


TOOLS = (request_path,)
