"""What the scripts of mail-tools ask for. Sessions are not offered it: they run the scripts."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

from pydantic import Field

from butlers.config.butler import Role
from butlers.domain.caller import SESSIONS
from butlers.domain.errors import InvalidArguments
from butlers.domain.message import check_storable
from butlers.sessions.routes import ROUTES
from butlers.switchboard.ingest import INBOX
from butlers.tools import mail_view as mail
from butlers.tools.base import Effect, tool
from butlers.tools.context import CallContext

MOST_WORDS = 20


@tool(callers=SESSIONS, effect=Effect.READ, outside=True)
async def mail_inbox(
    ctx: CallContext,
    state: Literal["ready", "leased", "dead"] | None = None,
    limit: Annotated[int, Field(ge=1, le=500)] = 50,
    offset: Annotated[int, Field(ge=0, le=1_000_000)] = 0,
) -> dict[str, Any]:
    """Messages that are not dealt with yet, oldest first."""
    return {"messages": await mail.list_waiting(ctx.connection, _queue(ctx), state, limit, offset)}


@tool(callers=SESSIONS, effect=Effect.READ, outside=True)
async def mail_search(
    ctx: CallContext,
    query: Annotated[str, Field(min_length=1, max_length=1_000)],
    since: datetime | None = None,
    until: datetime | None = None,
    limit: Annotated[int, Field(ge=1, le=200)] = 20,
) -> dict[str, Any]:
    """What was asked and said, newest first; all words of the query occur in it."""
    check_storable("the query", [query])
    words = query.split()
    if not 0 < len(words) <= MOST_WORDS:
        raise InvalidArguments(f"the query must have 1 to {MOST_WORDS} words")
    search = mail.search_inbox if _is_switchboard(ctx) else mail.search_history
    return {"found": await search(ctx.connection, words, _at(ctx, since), _at(ctx, until), limit)}


@tool(callers=SESSIONS, effect=Effect.READ)
async def mail_stats(
    ctx: CallContext, days: Annotated[int, Field(ge=1, le=366)] = 7
) -> dict[str, Any]:
    """How many messages wait, were dealt with and failed."""
    since = ctx.clock.now() - timedelta(days=days)
    return {"days": days, **await mail.count_mail(ctx.connection, _queue(ctx), since)}


def _is_switchboard(ctx: CallContext) -> bool:
    """Its mail is everybody's, on its way in."""
    return ctx.services.config.role is Role.SWITCHBOARD


def _queue(ctx: CallContext) -> str:
    return INBOX if _is_switchboard(ctx) else ROUTES


def _at(ctx: CallContext, moment: datetime | None) -> datetime | None:
    """In the butler's own zone unless it has an offset."""
    return moment.replace(tzinfo=ctx.zone) if moment and moment.tzinfo is None else moment


TOOLS = (mail_inbox, mail_search, mail_stats)
