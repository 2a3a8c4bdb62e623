"""Tool for the ways to reach a person."""

from __future__ import annotations

from typing import Any, Literal

from butlers.sdk import (
    SESSIONS,
    CallContext,
    contact_address,
    require_trusted_input,
    tool,
    uuid7,
)

from .lookup import find_or_create
from .settings import PersonText, Short

WayKind = Literal["phone", "email", "address", "chat", "website", "other"]


@tool(callers=SESSIONS)
async def contact_save(
    ctx: CallContext, person: PersonText, kind: WayKind, value: Short, label: Short | None = None
) -> dict[str, Any]:
    """Store how to reach a person. label: e.g. "work"."""
    # An address that others dictate would lead messages to them.
    require_trusted_input(ctx, "write addresses of contacts")
    row, is_new = await find_or_create(ctx, person)
    way = await ctx.connection.fetchrow(
        """
        INSERT INTO contact_ways (id, person_id, kind, value, label, address)
        VALUES ($1, $2, $3, $4, $5, $6)
        ON CONFLICT (person_id, kind, lower(value)) DO UPDATE
        SET value = excluded.value, address = excluded.address,
            label = coalesce(excluded.label, contact_ways.label)
        RETURNING id
        """,
        uuid7(),
        row["id"],
        kind,
        value.strip(),
        label,
        contact_address(ctx, kind, value),
    )
    new = " (new)" if is_new else ""
    return {"id": str(way["id"]), "text": f"Saved: {row['name']}{new}, {kind} {value.strip()}."}


TOOLS = (contact_save,)
