"""Tools for named collections of items."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from pydantic import Field

from butlers.sdk import SESSIONS, CallContext, Effect, tool, uuid7

Name = Annotated[str, Field(min_length=1, max_length=80)]
Tag = Annotated[str, Field(min_length=1, max_length=40)]


@tool(callers=SESSIONS)
async def item_create(
    ctx: CallContext, collection: Name, data: dict[str, Any], tags: list[Tag] | None = None
) -> dict[str, Any]:
    """Add an item to a collection; create the collection if it is missing."""
    collection_id = await _ensure_collection(ctx, collection)
    item_id = uuid7()
    await ctx.connection.execute(
        "INSERT INTO collection_items (id, collection_id, data, tags) VALUES ($1, $2, $3, $4)",
        item_id,
        collection_id,
        data,
        tags or [],
    )
    return {"id": str(item_id), "collection": collection}


@tool(callers=SESSIONS, effect=Effect.READ)
async def item_search(
    ctx: CallContext,
    collection: Name | None = None,
    query: str | None = None,
    limit: Annotated[int, Field(ge=1, le=500)] = 50,
) -> dict[str, Any]:
    """Find items whose text contains the query, newest first, in one collection or all."""
    rows = await ctx.connection.fetch(
        """
        SELECT item.id, collection.name AS collection, item.data, item.tags, item.created_at
        FROM collection_items AS item JOIN collections AS collection ON collection.id = collection_id
        WHERE ($1::text IS NULL OR collection.name = $1)
          AND ($2::text IS NULL OR position(lower($2) IN lower(item.data::text)) > 0)
        ORDER BY item.created_at DESC, item.id DESC LIMIT $3
        """,
        collection,
        query,
        limit,
    )
    return {"items": [_shown(row) for row in rows]}


@tool(callers=SESSIONS, effect=Effect.READ)
async def collection_list(ctx: CallContext) -> dict[str, Any]:
    """List the collections with their numbers of items."""
    rows = await ctx.connection.fetch(
        """
        SELECT collection.name, count(item.id) AS items
        FROM collections AS collection LEFT JOIN collection_items AS item
          ON item.collection_id = collection.id
        GROUP BY collection.name ORDER BY collection.name
        """
    )
    return {"collections": [dict(row) for row in rows]}


async def _ensure_collection(ctx: CallContext, name: str) -> UUID:
    found: UUID = await ctx.connection.fetchval(
        """
        INSERT INTO collections (id, name) VALUES ($1, $2)
        ON CONFLICT (name) DO UPDATE SET name = excluded.name RETURNING id
        """,
        uuid7(),
        name,
    )
    return found


def _shown(row: Any) -> dict[str, Any]:
    return {
        "id": str(row["id"]),
        "collection": row["collection"],
        "data": row["data"],
        "tags": row["tags"],
        "created_at": row["created_at"].isoformat(),
    }


TOOLS = (item_create, item_search, collection_list)
