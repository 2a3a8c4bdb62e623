"""Tools for notes with tags."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from pydantic import Field

from butlers.domain.errors import NotFound
from butlers.sdk import SESSIONS, CallContext, Effect, shown_source, tool, uuid7

from .shapes import After, Limit, Query, Tag, delete_row, folded, page, words_query

NoteText = Annotated[str, Field(min_length=1, max_length=20_000)]
COLUMNS = "id, text, tags, created_at, sender, trust"


@tool(callers=SESSIONS)
async def note_add(
    ctx: CallContext, text: NoteText, tags: list[Tag] | None = None
) -> dict[str, Any]:
    """Keep a note. Words with a # in the text become tags."""
    row = await ctx.connection.fetchrow(
        f"INSERT INTO notes (id, text, tags) VALUES ($1, $2, $3) RETURNING {COLUMNS}",
        uuid7(),
        text.strip(),
        _tags(text, tags),
    )
    return _shown(ctx, row)


@tool(callers=SESSIONS, effect=Effect.READ)
async def note_search(
    ctx: CallContext,
    query: Query | None = None,
    tag: Tag | None = None,
    limit: Limit = 20,
    after: After | None = None,
) -> dict[str, Any]:
    """Find notes by words or tag, newest first; without either, list the newest."""
    rows = await ctx.connection.fetch(
        f"""
        SELECT {COLUMNS} FROM notes
        WHERE ($1 = '' OR to_tsvector('simple', text) @@ to_tsquery('simple', $1))
          AND ($2::text IS NULL OR tags @> ARRAY[$2])
          AND ($3::uuid IS NULL OR (created_at, id) < (SELECT created_at, id FROM notes WHERE id = $3))
        ORDER BY created_at DESC, id DESC LIMIT $4
        """,
        words_query(query or ""),
        folded(tag) if tag else None,
        after,
        limit,
    )
    return page("notes", [_shown(ctx, row) for row in rows], limit)


@tool(callers=SESSIONS)
async def note_update(
    ctx: CallContext,
    id: UUID,  # noqa: A002
    text: NoteText | None = None,
    tags: list[Tag] | None = None,
) -> dict[str, Any]:
    """Replace the text or the tags of a note; omitted ones stay."""
    row = await ctx.connection.fetchrow(
        f"""
        UPDATE notes SET text = coalesce($2, text), tags = coalesce($3, tags)
        WHERE id = $1 RETURNING {COLUMNS}
        """,
        id,
        text,
        None if tags is None else [folded(tag) for tag in tags],
    )
    if row is None:
        raise NotFound(f"there is no note {id}", hint="note_search returns the ids")
    return _shown(ctx, row)


@tool(callers=SESSIONS)
async def note_delete(ctx: CallContext, id: UUID) -> dict[str, Any]:  # noqa: A002
    """Delete a note. undo brings it back."""
    return await delete_row(ctx, "notes", id, "note")


def _tags(text: str, tags: list[str] | None) -> list[str]:
    written = [word[1:].strip(".,;:!?") for word in text.split() if word.startswith("#")]
    found = (folded(tag) for tag in (*(tags or ()), *written))
    return list(dict.fromkeys(tag for tag in found if 0 < len(tag) <= 40))


def _shown(ctx: CallContext, row: Any) -> dict[str, Any]:
    return {
        "id": str(row["id"]),
        "text": row["text"],
        "tags": row["tags"],
        "when": f"{row['created_at'].astimezone(ctx.zone):%-d %B %Y}",
        **shown_source(ctx, row),
    }


TOOLS = (note_add, note_search, note_update, note_delete)
