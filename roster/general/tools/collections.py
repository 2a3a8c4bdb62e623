"""Tools for collections: items of any shape, checked against an optional JSON schema."""

from __future__ import annotations

import json
from typing import Annotated, Any
from uuid import UUID

from jsonschema import Draft202012Validator, SchemaError
from jsonschema.exceptions import best_match
from pydantic import Field

from butlers.domain.errors import InvalidArguments, NotFound
from butlers.sdk import SESSIONS, CallContext, Effect, shown_source, tool, uuid7

from .shapes import After, Limit, Name, Query, Tag, delete_row, folded, page, words_query

MAX_SCHEMA = 20_000  # characters
Data = Annotated[dict[str, Any], Field(max_length=100, description="fields of the item")]
COLUMNS = "item.id, item.data, item.tags, item.created_at, item.sender, item.trust"


@tool(callers=SESSIONS)
async def collection_save(
    ctx: CallContext,
    name: Name,
    description: Annotated[str, Field(max_length=500)] | None = None,
    schema: Annotated[dict[str, Any], Field(description="JSON Schema of an item's data")]
    | None = None,
) -> dict[str, Any]:
    """Create a collection, or change its description or schema. Items it has must fit a new schema."""
    if schema is not None:
        await _check_schema(ctx, folded(name), schema)
    await ctx.connection.execute(
        """
        INSERT INTO collections (id, name, description, schema) VALUES ($1, $2, $3, $4)
        ON CONFLICT (name) DO UPDATE
        SET description = coalesce(excluded.description, collections.description),
            schema = coalesce(excluded.schema, collections.schema)
        """,
        uuid7(),
        folded(name),
        description,
        schema,
    )
    return {"collection": folded(name), "has_schema": schema is not None}


@tool(callers=SESSIONS, effect=Effect.READ)
async def collection_list(ctx: CallContext) -> dict[str, Any]:
    """List the collections with descriptions, schemas and numbers of items."""
    rows = await ctx.connection.fetch(
        """
        SELECT name, description, schema, (
            SELECT count(*) FROM collection_items WHERE collection_id = collections.id) AS items
        FROM collections ORDER BY name
        """
    )
    return {"collections": [dict(row) for row in rows]}


@tool(callers=SESSIONS)
async def collection_delete(ctx: CallContext, name: Name) -> dict[str, Any]:
    """Delete a collection with all its items. undo brings it back."""
    found = await _find(ctx, name)
    # The items first: a cascade would leave undo with items before their collection.
    gone = await ctx.connection.fetch(
        "DELETE FROM collection_items WHERE collection_id = $1 RETURNING id", found["id"]
    )
    await ctx.connection.execute("DELETE FROM collections WHERE id = $1", found["id"])
    return {"collection": folded(name), "deleted_items": len(gone)}


@tool(callers=SESSIONS)
async def item_create(
    ctx: CallContext, collection: Name, data: Data, tags: list[Tag] | None = None
) -> dict[str, Any]:
    """Add an item to a collection; create the collection if it is missing."""
    await ctx.connection.execute(
        "INSERT INTO collections (id, name) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING",
        uuid7(),
        folded(collection),
    )
    found = await _find(ctx, collection)
    _check_data(data, found)
    row = await ctx.connection.fetchrow(
        f"""
        INSERT INTO collection_items AS item (id, collection_id, data, tags)
        VALUES ($1, $2, $3, $4) RETURNING {COLUMNS}
        """,
        uuid7(),
        found["id"],
        data,
        [folded(tag) for tag in tags or ()],
    )
    return _shown(ctx, row, found["name"])


@tool(callers=SESSIONS)
async def item_update(
    ctx: CallContext,
    id: UUID,  # noqa: A002
    data: Data | None = None,
    tags: list[Tag] | None = None,
) -> dict[str, Any]:
    """Change fields of an item; a field set to null is removed, omitted ones stay. tags replace all."""
    current = await ctx.connection.fetchrow(
        """
        SELECT item.data, collections.name, collections.schema FROM collection_items AS item
        JOIN collections ON collections.id = collection_id WHERE item.id = $1 FOR UPDATE OF item
        """,
        id,
    )
    if current is None:
        raise NotFound(f"there is no item {id}", hint="item_search returns the ids")
    merged = {**current["data"], **(data or {})}
    merged = {key: value for key, value in merged.items() if value is not None}
    _check_data(merged, current)
    row = await ctx.connection.fetchrow(
        f"""
        UPDATE collection_items AS item SET data = $2, tags = coalesce($3, tags)
        WHERE id = $1 RETURNING {COLUMNS}
        """,
        id,
        merged,
        None if tags is None else [folded(tag) for tag in tags],
    )
    return _shown(ctx, row, current["name"])


@tool(callers=SESSIONS)
async def item_delete(ctx: CallContext, id: UUID) -> dict[str, Any]:  # noqa: A002
    """Delete an item. undo brings it back."""
    return await delete_row(ctx, "collection_items", id, "item")


@tool(callers=SESSIONS, effect=Effect.READ)
async def item_search(
    ctx: CallContext,
    collection: Name | None = None,
    query: Query | None = None,
    tag: Tag | None = None,
    fields: Annotated[dict[str, Any], Field(description="fields with exactly these values")]
    | None = None,
    limit: Limit = 50,
    after: After | None = None,
) -> dict[str, Any]:
    """Find items by words, tag or fields, newest first, in one collection or all."""
    rows = await ctx.connection.fetch(
        f"""
        SELECT {COLUMNS}, collections.name FROM collection_items AS item
        JOIN collections ON collections.id = collection_id
        WHERE ($1::text IS NULL OR collections.name = $1)
          AND ($2 = '' OR to_tsvector('simple', item.data) @@ to_tsquery('simple', $2))
          AND ($3::text IS NULL OR item.tags @> ARRAY[$3])
          AND ($4::jsonb IS NULL OR item.data @> $4)
          AND ($5::uuid IS NULL OR item.id < $5)
        ORDER BY item.id DESC LIMIT $6
        """,
        folded(collection) if collection else None, words_query(query or ""),
        folded(tag) if tag else None, fields, after, limit,
    )  # fmt: skip
    return page("items", [_shown(ctx, row, row["name"]) for row in rows], limit)


async def _find(ctx: CallContext, name: str) -> Any:
    row = await ctx.connection.fetchrow(
        "SELECT id, name, schema FROM collections WHERE name = $1", folded(name)
    )
    if row is None:
        raise NotFound(f"there is no collection {name!r}", hint="collection_list shows them")
    return row


def _check_data(data: dict[str, Any], collection: Any) -> None:
    if collection["schema"] is None:
        return
    error = best_match(Draft202012Validator(collection["schema"]).iter_errors(data))
    if error is not None:
        where = ".".join(str(part) for part in error.absolute_path)
        raise InvalidArguments(
            f"the item does not fit {collection['name']}: {where + ': ' if where else ''}{error.message}",
            hint="collection_list shows the schema",
        )


async def _check_schema(ctx: CallContext, name: str, schema: dict[str, Any]) -> None:
    text = json.dumps(schema)
    if len(text) > MAX_SCHEMA or '"$ref"' in text or '"pattern' in text:
        raise InvalidArguments(
            "the schema is too long or uses $ref or patterns", hint="use types, enums and required"
        )
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        raise InvalidArguments(f"this is no JSON schema: {error.message}") from None
    rows = await ctx.connection.fetch(
        "SELECT data FROM collection_items JOIN collections ON collections.id = collection_id"
        " WHERE collections.name = $1 LIMIT 1000",
        name,
    )
    for row in rows:
        _check_data(row["data"], {"schema": schema, "name": name})


def _shown(ctx: CallContext, row: Any, collection: str) -> dict[str, Any]:
    return {
        "id": str(row["id"]),
        "collection": collection,
        "data": row["data"],
        "tags": row["tags"],
        "created_at": row["created_at"].isoformat(),
        **shown_source(ctx, row),
    }


TOOLS = (
    collection_save,
    collection_list,
    collection_delete,
    item_create,
    item_update,
    item_delete,
    item_search,
)
