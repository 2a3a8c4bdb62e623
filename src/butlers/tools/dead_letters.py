"""What could not be handled: shown to the owner, and given another chance or thrown away."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from pydantic import Field

from butlers.domain.caller import OWNER_ONLY
from butlers.domain.errors import NotFound
from butlers.queue import dead_letters
from butlers.tools.base import Effect, tool
from butlers.tools.context import CallContext


@tool(callers=OWNER_ONLY, effect=Effect.READ)
async def dead_letters_list(
    ctx: CallContext,
    limit: Annotated[int, Field(ge=1, le=500)] = 50,
    offset: Annotated[int, Field(ge=0, le=1_000_000)] = 0,
) -> dict[str, Any]:
    """Items that failed for good, newest first: queue, attempts, error."""
    return {"dead_letters": await dead_letters.list_dead(ctx.connection, limit, offset)}


@tool(callers=OWNER_ONLY, effect=Effect.READ)
async def dead_letters_get(
    ctx: CallContext,
    id: UUID,  # noqa: A002  (the name its callers know)
) -> dict[str, Any]:
    """One dead letter in full, with what it carries."""
    found = await dead_letters.get_dead(ctx.connection, id)
    if found is None:
        raise _missing(id)
    return found


@tool(callers=OWNER_ONLY)
async def dead_letters_replay(
    ctx: CallContext,
    id: UUID,  # noqa: A002
) -> dict[str, Any]:
    """Try it again from the start. What it has already done is not done twice."""
    if not await dead_letters.replay(ctx.connection, id):
        raise _missing(id)
    return {"id": str(id), "status": "replayed"}


@tool(callers=OWNER_ONLY)
async def dead_letters_discard(
    ctx: CallContext,
    id: UUID,  # noqa: A002
) -> dict[str, Any]:
    """Throw it away for good."""
    if not await dead_letters.discard(ctx.connection, id):
        raise _missing(id)
    return {"id": str(id), "status": "discarded"}


def _missing(item_id: UUID) -> NotFound:
    return NotFound(f"there is no dead letter {item_id}", hint="`butlers dead list` shows them")


TOOLS = (dead_letters_list, dead_letters_get, dead_letters_replay, dead_letters_discard)
