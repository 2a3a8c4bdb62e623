"""Tools that read memory: search, recall, one item with its history, the context block, statistics."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import Field

from butlers.db.database import Connection
from butlers.domain.caller import OWNER_ONLY, SESSIONS
from butlers.domain.errors import NotFound
from butlers.modules.memory.context_block import BlockRequest
from butlers.modules.memory.items import ItemKind
from butlers.modules.memory.search.engine import SearchResult
from butlers.modules.memory.search.query import Mode, SearchRequest
from butlers.modules.memory.shown import shown_details, shown_hit, shown_item
from butlers.modules.memory.store.events import events_of, links_of
from butlers.modules.memory.store.facts import history_of
from butlers.modules.memory.store.statistics import memory_counts
from butlers.modules.memory.tools.access import memory_of
from butlers.modules.memory.trust import visible_sender
from butlers.tools.context import CallContext
from butlers.tools.declaration import Effect, tool

Query = Annotated[str, Field(min_length=1, max_length=2_000)]
Kinds = Annotated[list[ItemKind], Field(max_length=3)]
TrustFilter = Literal["owner", "outside", "any"]
Limit = Annotated[int, Field(ge=1, le=100)]
Confidence = Annotated[float, Field(ge=0, le=1)]


@tool(callers=SESSIONS, effect=Effect.LOOK)
async def memory_search(
    ctx: CallContext,
    query: Query,
    types: Kinds | None = None,
    scope: str | None = None,
    mode: Mode = "hybrid",
    limit: Limit = 10,
    min_confidence: Confidence = 0.05,
    entity_id: UUID | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    trust: TrustFilter = "owner",
    history: bool = False,
    explain: bool = False,
) -> dict[str, Any]:
    """Search episodes, facts and rules by words and meaning; times ("last spring") and names are understood.

    trust "any" includes what other people wrote; after reading such an item the session may not store rules
    or facts. history: also facts that were superseded. explain: why each item came back.
    """
    request = SearchRequest(
        query,
        ctx.now,
        tuple(types) if types else tuple(ItemKind),
        mode,
        limit,
        scope,
        entity_id,
        since,
        until,
        None if trust == "any" else trust,
        min_confidence=min_confidence,
        history=history,
    )
    found = await memory_of(ctx).engine.search(_visible(ctx, request))
    return _shown(ctx, found, explain=explain)


@tool(callers=SESSIONS, effect=Effect.LOOK)
async def memory_recall(
    ctx: CallContext,
    topic: Query,
    scope: str | None = None,
    limit: Limit = 10,
    min_confidence: Confidence = 0.05,
) -> dict[str, Any]:
    """Recall what matters about a topic: relevance, importance, recency and confidence together."""
    request = SearchRequest(
        topic, ctx.now, limit=limit, scope=scope, trust="owner", min_confidence=min_confidence
    )
    found = await memory_of(ctx).engine.recall(_visible(ctx, request))
    return _shown(ctx, found, explain=False)


def _visible(ctx: CallContext, request: SearchRequest) -> SearchRequest:
    """Restrict a session for another person's message to what that person told."""
    sender = visible_sender(ctx)
    return request if sender is None else replace(request, sender=sender, trust="outside")


def _shown(ctx: CallContext, found: SearchResult, *, explain: bool) -> dict[str, Any]:
    shown: dict[str, Any] = {"items": [shown_hit(ctx, hit, explain=explain) for hit in found.hits]}
    if found.notes:
        shown["notes"] = list(found.notes)
    if explain:
        span = found.query.span
        shown["understood"] = {
            "words": [term.lexeme for term in found.query.terms],
            "names": list(found.query.names),
            "time": [span.start.isoformat(), span.end.isoformat()] if span else None,
        }
    return shown


@tool(callers=SESSIONS, effect=Effect.READ)
async def memory_get(ctx: CallContext, id: UUID) -> dict[str, Any]:  # noqa: A002
    """Return one item with its source, its links and everything that happened to it."""
    kind, row = await find_item(ctx.connection, id)
    sender = visible_sender(ctx)
    if sender is not None and (row["sender"], row["trust"]) != (sender, "outside"):
        raise _missing(id)
    shown = shown_details(ctx, kind, row)
    shown["links"] = await links_of(ctx.connection, id)
    shown["events"] = await events_of(ctx.connection, id)
    if kind is ItemKind.FACT and sender is None:
        others = [r for r in await history_of(ctx.connection, row) if r["id"] != id]
        shown["history"] = [shown_item(ctx, kind, other) for other in others]
    return shown


@tool(callers=OWNER_ONLY, effect=Effect.READ)
async def memory_list(
    ctx: CallContext,
    kind: ItemKind = ItemKind.FACT,
    before: UUID | None = None,
    limit: Limit = 20,
) -> dict[str, Any]:
    """Return the newest items of a kind in force. For the next page pass the last id as before."""
    valid = "validity = 'active'" if kind is ItemKind.FACT else "true"
    rows = await ctx.connection.fetch(
        f"""
        SELECT * FROM {kind.table} WHERE {valid} AND ($1::uuid IS NULL OR id < $1)
        ORDER BY id DESC LIMIT $2
        """,
        before,
        limit,
    )
    return {"items": [shown_item(ctx, kind, row) for row in rows]}


async def find_item(connection: Connection, item_id: UUID) -> tuple[ItemKind, Any]:
    for kind in ItemKind:
        row = await connection.fetchrow(f"SELECT * FROM {kind.table} WHERE id = $1", item_id)
        if row is not None:
            return kind, row
    raise _missing(item_id)


def _missing(item_id: UUID) -> NotFound:
    return NotFound(f"there is no memory {item_id}", hint="memory_search finds items")


@tool(callers=SESSIONS, effect=Effect.LOOK)
async def memory_context(
    ctx: CallContext,
    topic: Query,
    max_tokens: Annotated[int, Field(ge=100, le=20_000)] = 3_000,
) -> dict[str, Any]:
    """Return the block of memory that a session about this topic gets."""
    request = BlockRequest(topic, ctx.now, max_tokens, visible_sender(ctx))
    return {"context": await memory_of(ctx).block(request) or ""}


@tool(callers=SESSIONS, effect=Effect.READ)
async def memory_stats(ctx: CallContext) -> dict[str, Any]:
    """Count items, and what should not be there: junk, duplicates, contradictions, unsourced items."""
    found = await memory_counts(ctx.connection, ctx.now)
    return {**found, "embedding": memory_of(ctx).embedding_state()}


TOOLS = (memory_search, memory_recall, memory_get, memory_list, memory_context, memory_stats)
