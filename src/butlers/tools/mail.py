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
from butlers.queue import queries
from butlers.sessions.session_log import count_outcomes, search_sessions
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
    return {
        "messages": await queries.list_waiting(
            ctx.connection, _view(ctx).queue, state, limit, offset
        )
    }


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
    waiting = await queries.count_waiting(ctx.connection, _view(ctx).queue)
    handled = await count_outcomes(ctx.connection, since)
    return {"days": days, **waiting, "dealt_with": handled}


def _view(ctx: CallContext) -> MailView:
    return ctx.services.find(MailView) or _ROUTED


def _at(ctx: CallContext, moment: datetime | None) -> datetime | None:
    """Read a time without an offset as local time of the butler."""
    return moment.replace(tzinfo=ctx.zone) if moment and moment.tzinfo is None else moment


def _escaped(word: str) -> str:
    return word.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


_ROUTED = MailView(ROUTES, search_sessions)

TOOLS = (mail_inbox, mail_search, mail_stats)
