"""Tools about requests: the path of one through this butler, and dead letters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any
from uuid import UUID

from pydantic import Field

from butlers.db.database import Connection
from butlers.domain.caller import OWNER_ONLY
from butlers.domain.errors import NotFound
from butlers.queue import dead_letters
from butlers.tools.context import CallContext
from butlers.tools.declaration import Effect, tool
from butlers.tools.role import Hop

QUEUED = """
SELECT created_at AS at, queue, state, attempts, error, run_after, finished_at,
       result ->> 'command' AS command
FROM queue_items WHERE queue IN ('inbox', 'commands', 'routes') AND key = ANY($1)
"""
OUTGOING = """
SELECT created_at AS at, queue, state, attempts, error, run_after, finished_at FROM queue_items
WHERE queue IN ('notify', 'deliveries') AND payload ->> 'request_id' = $1
"""
SESSIONS = """
SELECT started_at AS at, id, runtime, model, outcome, error, duration_ms, input_tokens, output_tokens,
       cost_usd
FROM sessions WHERE request_id = $1
"""
CALLS = """
SELECT called_at AS at, tool, ok, replayed, error, duration_ms FROM tool_calls
WHERE request_id = $1 AND session_id IS NOT NULL
"""


@tool(callers=OWNER_ONLY, effect=Effect.READ)
async def request_path(ctx: CallContext, request_id: UUID) -> dict[str, Any]:
    """The hops of a request in this butler: received, queued, sessions, their calls, deliveries."""
    connection = ctx.connection
    hops = [
        *await queued_hops(connection, [str(request_id)]),
        *await read_hops(connection, "queued", OUTGOING, str(request_id)),
        *await read_hops(connection, "session", SESSIONS, request_id),
        *await read_hops(connection, "call", CALLS, request_id),
    ]
    for role in ctx.services.roles:
        hops += await role.request_hops(connection, request_id)
    return {"hops": sorted(hops, key=lambda hop: hop["at"])}


async def queued_hops(connection: Connection, keys: Sequence[str]) -> list[Hop]:
    """Return the queue items of a request, or of its parts, by their keys."""
    return await read_hops(connection, "queued", QUEUED, keys)


async def read_hops(connection: Connection, kind: str, sql: str, key: object) -> list[Hop]:
    return [{"hop": kind, **dict(row)} for row in await connection.fetch(sql, key)]


@tool(callers=OWNER_ONLY, effect=Effect.READ)
async def dead_letters_list(
    ctx: CallContext,
    limit: Annotated[int, Field(ge=1, le=500)] = 50,
    offset: Annotated[int, Field(ge=0, le=1_000_000)] = 0,
) -> dict[str, Any]:
    """Items that failed permanently, newest first: queue, attempts, error."""
    return {"dead_letters": await dead_letters.list_dead(ctx.connection, limit, offset)}


@tool(callers=OWNER_ONLY, effect=Effect.READ)
async def dead_letters_get(
    ctx: CallContext,
    id: UUID,  # noqa: A002  (the name its callers know)
) -> dict[str, Any]:
    """One dead letter with its payload."""
    found = await dead_letters.get_dead(ctx.connection, id)
    if found is None:
        raise _missing(id)
    return found


@tool(callers=OWNER_ONLY)
async def dead_letters_replay(
    ctx: CallContext,
    id: UUID,  # noqa: A002
) -> dict[str, Any]:
    """Try it again from the start. Calls that already happened are not repeated."""
    if not await dead_letters.replay(ctx.connection, id):
        raise _missing(id)
    return {"id": str(id), "status": "replayed"}


@tool(callers=OWNER_ONLY)
async def dead_letters_discard(
    ctx: CallContext,
    id: UUID,  # noqa: A002
) -> dict[str, Any]:
    """Delete it permanently."""
    if not await dead_letters.discard(ctx.connection, id):
        raise _missing(id)
    return {"id": str(id), "status": "discarded"}


def _missing(item_id: UUID) -> NotFound:
    return NotFound(f"there is no dead letter {item_id}", hint="`butlers dead list` shows them")


TOOLS = (
    request_path,
    dead_letters_list,
    dead_letters_get,
    dead_letters_replay,
    dead_letters_discard,
)
