"""Argument types and queries that the General butler's tools share."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from pydantic import Field

from butlers.domain.errors import NotFound
from butlers.sdk import CallContext

Name = Annotated[str, Field(min_length=1, max_length=80)]
Tag = Annotated[str, Field(min_length=1, max_length=40)]
Query = Annotated[str, Field(min_length=1, max_length=200, description="words to find")]
Limit = Annotated[int, Field(ge=1, le=200)]
After = Annotated[UUID, Field(description="last id of the previous page")]


def words_query(text: str) -> str:
    """Return a full-text query for all words of the text, each also as the beginning of a word."""
    words = ["".join(char for char in word if char.isalnum()) for word in text.split()]
    return " & ".join(f"{word}:*" for word in words if word)


def folded(name: str) -> str:
    """Return the form in which names of lists and tags are kept."""
    return " ".join(name.casefold().split())


async def delete_row(ctx: CallContext, table: str, row_id: UUID, what: str) -> dict[str, Any]:
    gone = await ctx.connection.fetchval(
        f"DELETE FROM {table} WHERE id = $1 RETURNING true", row_id
    )
    if not gone:
        raise NotFound(
            f"there is no {what} {row_id}", hint="use an id that a list or search returned"
        )
    return {"id": str(row_id), "status": "deleted"}


def page(key: str, rows: list[dict[str, Any]], limit: int) -> dict[str, Any]:
    """Return one page; ``next`` is the ``after`` of the following one, if there may be one."""
    return {key: rows, "next": rows[-1]["id"] if len(rows) == limit else None}
