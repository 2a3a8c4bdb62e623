"""The steps of one request that a butler's tables know, for ``butlers trace``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from butlers.db.database import Connection
from butlers.domain.caller import OWNER_ONLY
from butlers.tools.base import Effect, tool
from butlers.tools.context import CallContext
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
    """Each hop of a request here: received, queued, sessions, their calls, deliveries."""
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


async def routed_text(connection: Connection, request_id: UUID) -> str:
    """Return the text of a routed request with the conversation that came with it."""
    found: str | None = await connection.fetchval(
        "SELECT payload::text FROM queue_items WHERE queue = 'routes' AND key = $1", str(request_id)
    )
    return found or ""


async def routed_message(connection: Connection, request_id: UUID) -> str:
    """Return the text of a routed request without the conversation before it."""
    found: str | None = await connection.fetchval(
        "SELECT payload ->> 'text' FROM queue_items WHERE queue = 'routes' AND key = $1",
        str(request_id),
    )
    return found or ""


TOOLS = (request_path,)
