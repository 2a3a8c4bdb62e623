"""Tools about requests: the path of one through this butler, and dead letters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any
from uuid import UUID

from pydantic import Field

from butlers.db.database import Connection
from butlers.domain.caller import OWNER_ONLY
from butlers.domain.errors import NotFound
from butlers.queue import dead_letters, queries
from butlers.sessions.session_log import session_calls_of_request, sessions_of_request
from butlers.tools.context import CallContext
from butlers.tools.declaration import Effect, tool
from butlers.tools.role import Hop


@tool(callers=OWNER_ONLY, effect=Effect.READ)
async def request_path(ctx: CallContext, request_id: UUID) -> dict[str, Any]:
    """The hops of a request in this butler: received, queued, sessions, their calls, deliveries."""
    connection = ctx.connection
    hops = [
        *as_hops("queued", await queries.items_by_key(connection, [str(request_id)])),
        *as_hops("queued", await queries.outgoing_items(connection, request_id)),
        *as_hops("session", await sessions_of_request(connection, request_id)),
        *as_hops("call", await session_calls_of_request(connection, request_id)),
    ]
    for role in ctx.services.roles:
        hops += await role.request_hops(connection, request_id)
    return {"hops": sorted(hops, key=lambda hop: hop["at"])}


async def read_hops(connection: Connection, kind: str, sql: str, request_id: UUID) -> list[Hop]:
    return as_hops(kind, map(dict, await connection.fetch(sql, request_id)))


def as_hops(kind: str, rows: Iterable[Mapping[str, Any]]) -> list[Hop]:
    return [{"hop": kind, **row} for row in rows]


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
