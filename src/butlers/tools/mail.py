"""Tools of the mail-tools skill: messages that wait, search, counts. Only the skill's scripts call them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

from pydantic import Field

from butlers.db.database import Connection
from butlers.domain.caller import SESSIONS
from butlers.domain.errors import InvalidArguments
from butlers.domain.message import check_storable
from butlers.domain.queues import ROUTES
from butlers.tools.context import CallContext
from butlers.tools.declaration import Effect, tool

MOST_WORDS = 20

# Finds messages by ILIKE patterns (all must match) and a time range, newest first.
Search = Callable[
    [Connection, list[str], datetime | None, datetime | None, int], Awaitable[list[dict[str, Any]]]
]


@dataclass(frozen=True, slots=True)
class MailView:
    """The messages that the tools show. A role may provide another view than that of most butlers."""

    queue: str
    search: Search


@tool(callers=SESSIONS, effect=Effect.READ, outside=True)
async def mail_inbox(
    ctx: CallContext,
    state: Literal["ready", "leased", "dead"] | None = None,
    limit: Annotated[int, Field(ge=1, le=500)] = 50,
    offset: Annotated[int, Field(ge=0, le=1_000_000)] = 0,
) -> dict[str, Any]:
    """Messages that are not handled yet, oldest first."""
    return {"messages": await _list_waiting(ctx.connection, _view(ctx).queue, state, limit, offset)}


@tool(callers=SESSIONS, effect=Effect.READ, outside=True)
async def mail_search(
    ctx: CallContext,
    query: Annotated[str, Field(min_length=1, max_length=1_000)],
    since: datetime | None = None,
    until: datetime | None = None,
    limit: Annotated[int, Field(ge=1, le=200)] = 20,
) -> dict[str, Any]:
    """Find messages that contain all words of the query, newest first."""
    check_storable("the query", [query])
    words = query.split()
    if not 0 < len(words) <= MOST_WORDS:
        raise InvalidArguments(f"the query must have 1 to {MOST_WORDS} words")
    patterns = [f"%{_escaped(word)}%" for word in words]
    found = await _view(ctx).search(
        ctx.connection, patterns, _at(ctx, since), _at(ctx, until), limit
    )
    return {"found": found}


@tool(callers=SESSIONS, effect=Effect.READ)
async def mail_stats(
    ctx: CallContext, days: Annotated[int, Field(ge=1, le=366)] = 7
) -> dict[str, Any]:
    """Numbers of messages that wait, were handled and failed."""
    since = ctx.clock.now() - timedelta(days=days)
    return {"days": days, **await _count_mail(ctx.connection, _view(ctx).queue, since)}


def _view(ctx: CallContext) -> MailView:
    return ctx.services.find(MailView) or _ROUTED


def _at(ctx: CallContext, moment: datetime | None) -> datetime | None:
    """Read a time without an offset as local time of the butler."""
    return moment.replace(tzinfo=ctx.zone) if moment and moment.tzinfo is None else moment


def _escaped(word: str) -> str:
    return word.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


async def _list_waiting(
    connection: Connection, queue: str, state: str | None, limit: int, offset: int
) -> list[dict[str, Any]]:
    rows = await connection.fetch(
        """
        SELECT key AS request_id, payload->>'text' AS text,
               payload->'request'->>'source_channel' AS channel,
               payload->'request'->>'source_sender_identity' AS sender,
               payload->'request'->>'received_at' AS received_at,
               state, attempts, error
        FROM queue_items
        WHERE queue = $1 AND state <> 'done' AND ($2::text IS NULL OR state = $2)
        ORDER BY id LIMIT $3 OFFSET $4
        """,
        queue,
        state,
        limit,
        offset,
    )
    return [dict(row) for row in rows]


async def _search_sessions(
    connection: Connection,
    patterns: list[str],
    since: datetime | None,
    until: datetime | None,
    limit: int,
) -> list[dict[str, Any]]:
    """Return sessions whose prompt or output matches every pattern, newest first."""
    query = """
        SELECT id AS session_id, request_id, trigger_source, prompt, output, outcome, started_at
        FROM sessions
        WHERE prompt || E'\\n' || coalesce(output, '') ILIKE ALL ($1::text[])
          AND ($2::timestamptz IS NULL OR started_at >= $2)
          AND ($3::timestamptz IS NULL OR started_at < $3)
        ORDER BY started_at DESC, id DESC LIMIT $4
        """
    return [dict(row) for row in await connection.fetch(query, patterns, since, until, limit)]


async def _count_mail(connection: Connection, queue: str, since: datetime) -> dict[str, Any]:
    waiting = await connection.fetch(
        """
        SELECT state, count(*) AS number, min(payload->'request'->>'received_at') AS oldest
        FROM queue_items WHERE queue = $1 AND state <> 'done' GROUP BY state ORDER BY state
        """,
        queue,
    )
    outcomes = await connection.fetch(
        """
        SELECT coalesce(outcome, 'running') AS outcome, count(*) AS number FROM sessions
        WHERE started_at >= $1 AND trigger_source = 'route' GROUP BY 1 ORDER BY 1
        """,
        since,
    )
    return {
        "waiting": {row["state"]: row["number"] for row in waiting},
        "oldest_waiting": min((row["oldest"] for row in waiting if row["oldest"]), default=None),
        "dealt_with": {row["outcome"]: row["number"] for row in outcomes},
    }


_ROUTED = MailView(ROUTES, _search_sessions)

TOOLS = (mail_inbox, mail_search, mail_stats)
