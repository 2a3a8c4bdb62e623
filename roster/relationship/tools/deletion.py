"""Deleting one relationship record of any kind. The core tool ``undo`` brings it back."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from butlers.domain.errors import NotFound
from butlers.sdk import SESSIONS, CallContext, tool

TABLES = (
    "people",
    "contact_ways",
    "person_dates",
    "person_notes",
    "interactions",
    "gifts",
    "loans",
    "groups",
    "relations",
    "aliases",
)


@tool(callers=SESSIONS)
async def relationship_delete(ctx: CallContext, id: UUID) -> dict[str, Any]:  # noqa: A002
    """Delete a record by its id. A person is deleted with everything that is known about them."""
    for table in TABLES:
        if await ctx.connection.fetchval(f"DELETE FROM {table} WHERE id = $1 RETURNING id", id):
            return {"deleted": str(id), "table": table, "text": "Deleted. Say “undo” to restore."}
    raise NotFound(f"there is no record {id}", hint="use an id that a list returned")


TOOLS = (relationship_delete,)
