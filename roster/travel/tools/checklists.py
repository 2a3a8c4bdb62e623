"""Tools for the lists of a trip: things to pack, and things to do before leaving."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Annotated, Any, Literal

from pydantic import Field

from butlers.domain.errors import NotFound
from butlers.sdk import SESSIONS, CallContext, Day, Effect, read_day, shown_source, tool, uuid7

from .trips import Trip, TripName, require_trip

TripList = Literal["packing", "before"]
Title = Annotated[str, Field(min_length=1, max_length=200)]


@tool(callers=SESSIONS)
async def checklist_add(
    ctx: CallContext,
    items: Annotated[list[Title], Field(min_length=1, max_length=100)],
    list: Annotated[  # noqa: A002
        TripList, Field(description="packing, or before (to do before leaving)")
    ] = "packing",
    due_on: Day | None = None,
    trip: TripName | None = None,
) -> dict[str, Any]:
    """Add items to a trip's packing list or to its list of things to do before leaving."""
    chosen = await require_trip(ctx, trip)
    due = read_day(ctx, due_on) if due_on else None
    titles = [title for item in items for title in _split(item)]
    added = [title for title in titles if await _add(ctx, chosen, list, title, due)]
    already = [title for title in titles if title not in added]
    known = f" Already there: {', '.join(already)}." if already else ""
    what = f"Added to {_name(list)} of {chosen.name}: {', '.join(added)}." if added else ""
    return {"trip": chosen.name, "added": added, "text": f"{what}{known}".strip()}


@tool(callers=SESSIONS)
async def checklist_check(
    ctx: CallContext, item: Title, done: bool = True, trip: TripName | None = None
) -> dict[str, Any]:
    """Check an item of a trip's lists off (or, with done=false, open it again)."""
    chosen = await require_trip(ctx, trip)
    rows = await ctx.connection.fetch("SELECT * FROM tasks WHERE trip_id = $1", chosen.id)
    by_title = {row["title"].casefold(): row for row in rows}
    near = get_close_matches(item.strip().casefold(), by_title, n=1, cutoff=0.7)
    if not near:
        names = ", ".join(row["title"] for row in rows[:5])
        raise NotFound(
            f"{item!r} is on no list of {chosen.name}",
            hint=f"items: {names}" if names else "add it first",
        )
    row = await ctx.connection.fetchrow(
        "UPDATE tasks SET done_at = $2 WHERE id = $1 RETURNING *",
        by_title[near[0]]["id"],
        ctx.now if done else None,
    )
    left = await ctx.connection.fetchval(
        "SELECT count(*) FROM tasks WHERE trip_id = $1 AND list = $2 AND done_at IS NULL",
        chosen.id,
        row["list"],
    )
    state = "Done" if done else "Open again"
    return {**shown_item(ctx, row), "open": left, "text": f"{state}: {row['title']}. {left} left."}


@tool(callers=SESSIONS, effect=Effect.READ)
async def checklist_show(
    ctx: CallContext,
    list: TripList | None = None,  # noqa: A002
    trip: TripName | None = None,
) -> dict[str, Any]:
    """Show the lists of a trip: open items first."""
    chosen = await require_trip(ctx, trip)
    rows = await ctx.connection.fetch(
        """
        SELECT * FROM tasks WHERE trip_id = $1 AND ($2::text IS NULL OR list = $2)
        ORDER BY list DESC, done_at IS NOT NULL, due_on, id LIMIT 200
        """,
        chosen.id,
        list,
    )
    lines = [item_line(row) for row in rows]
    open_items = sum(row["done_at"] is None for row in rows)
    head = f"{chosen.name}: {open_items} of {len(rows)} open"
    return {
        "trip": chosen.name,
        "items": [shown_item(ctx, row) for row in rows],
        "text": "\n".join((head, *lines)) if rows else "",
    }


async def _add(ctx: CallContext, trip: Trip, name: str, title: str, due: Any) -> bool:
    added = await ctx.connection.fetchval(
        """
        INSERT INTO tasks (id, trip_id, list, title, due_on) VALUES ($1, $2, $3, $4, $5)
        ON CONFLICT (trip_id, list, lower(title)) DO NOTHING RETURNING id
        """,
        uuid7(),
        trip.id,
        name,
        title,
        due,
    )
    return added is not None


def _split(item: str) -> Sequence[str]:
    """Return the single items of "socks, shirts and a charger"."""
    parts = [part.strip() for piece in item.split(",") for part in piece.split(" and ")]
    return [part for part in parts if part]


def _name(name: str) -> str:
    return "the packing list" if name == "packing" else "the to-dos"


def item_line(row: Mapping[str, Any]) -> str:
    mark = "x" if row["done_at"] else " "
    due = f" (by {row['due_on']:%-d %B})" if row["due_on"] else ""
    return f"[{mark}] {row['title']}{due}"


def shown_item(ctx: CallContext, row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": str(row["id"]),
        "list": row["list"],
        "title": row["title"],
        "due_on": row["due_on"].isoformat() if row["due_on"] else None,
        "done": row["done_at"] is not None,
        **shown_source(ctx, row),
    }


TOOLS = (checklist_add, checklist_check, checklist_show)
