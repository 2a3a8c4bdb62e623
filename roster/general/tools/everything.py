"""Tools over notes, lists and collections at once: search and export."""

from __future__ import annotations

import csv
import io
import json
from typing import Annotated, Any, Literal

from pydantic import Field

from butlers.domain.errors import InvalidArguments
from butlers.sdk import SESSIONS, CallContext, Effect, shown_source, tool

from .lists import list_name
from .shapes import Limit, Name, Query, folded, words_query

MAX_ROWS = 2_000
FOUND = """
SELECT 'note' AS kind, id, text, NULL AS place, created_at, sender, trust FROM notes
WHERE to_tsvector('simple', text) @@ to_tsquery('simple', $1)
UNION ALL
SELECT 'list item', id, title, list, created_at, sender, trust FROM list_items
WHERE to_tsvector('simple', title) @@ to_tsquery('simple', $1)
UNION ALL
SELECT 'item', item.id, item.title, collections.name, item.created_at, item.sender, item.trust
FROM collection_items AS item JOIN collections ON collections.id = collection_id
WHERE to_tsvector('simple', data) @@ to_tsquery('simple', $1)
ORDER BY created_at DESC, id DESC LIMIT $2
"""
SOURCES = {
    "notes": (
        "SELECT id, text, tags, created_at FROM notes WHERE $1::text IS NULL OR tags @> ARRAY[$1]"
        " ORDER BY id LIMIT $2"
    ),
    "lists": (
        "SELECT id, list, title, due_on, due_at, repeat_rule, done_at, created_at FROM list_items"
        " WHERE $1::text IS NULL OR list = $1 ORDER BY id LIMIT $2"
    ),
    "collections": (
        "SELECT item.id, name AS collection, data, tags, item.created_at FROM collection_items AS item"
        " JOIN collections ON collections.id = collection_id"
        " WHERE $1::text IS NULL OR name = $1 ORDER BY item.id LIMIT $2"
    ),
}


@tool(callers=SESSIONS, effect=Effect.READ)
async def search(ctx: CallContext, query: Query, limit: Limit = 20) -> dict[str, Any]:
    """Search notes, lists and collections for words, newest first."""
    words = words_query(query)
    if not words:
        raise InvalidArguments("the query has no words", hint="use letters or digits")
    rows = await ctx.connection.fetch(FOUND, words, limit)
    return {"found": [_shown(ctx, row) for row in rows]}


@tool(callers=SESSIONS, effect=Effect.READ)
async def export(
    ctx: CallContext,
    what: Literal["notes", "lists", "collections"],
    name: Annotated[Name, Field(description="only this list, collection or tag")] | None = None,
    format: Literal["csv", "json"] = "csv",  # noqa: A002
) -> dict[str, Any]:
    """Return notes, lists or collections as one CSV or JSON document."""
    chosen = None if name is None else list_name(name) if what == "lists" else folded(name)
    rows = await ctx.connection.fetch(SOURCES[what], chosen, MAX_ROWS + 1)
    records = [_plain(dict(row)) for row in rows[:MAX_ROWS]]
    text = json.dumps(records, ensure_ascii=False) if format == "json" else _csv(records)
    return {"rows": len(records), "complete": len(rows) <= MAX_ROWS, "document": text}


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    data = row.pop("data", {})
    row = {**row, **{key: value for key, value in data.items() if key not in row}}
    return {key: _text(value) for key, value in row.items()}


def _text(value: Any) -> Any:
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return ", ".join(value)
    return (
        value
        if isinstance(value, (str, int, float, bool, dict, list)) or value is None
        else str(value)
    )


def _csv(records: list[dict[str, Any]]) -> str:
    columns = list(dict.fromkeys(key for record in records for key in record))
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: _cell(value) for key, value in record.items()} for record in records)
    return out.getvalue()


def _cell(value: Any) -> Any:
    """Return a value for a CSV cell; a spreadsheet must not take text for a formula."""
    if isinstance(value, (dict, list)):
        return json.dumps(value, ensure_ascii=False)
    return f"'{value}" if isinstance(value, str) and value[:1] in "=+-@\t\r" and value else value


def _shown(ctx: CallContext, row: Any) -> dict[str, Any]:
    return {
        "kind": row["kind"],
        "id": str(row["id"]),
        "text": row["text"][:300],
        "place": row["place"],
        "when": f"{row['created_at'].astimezone(ctx.zone):%-d %B %Y}",
        **shown_source(ctx, row),
    }


TOOLS = (search, export)
