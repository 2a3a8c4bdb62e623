"""Tools for the same person under two names: find pairs, merge, take a merge back."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from pydantic import Field

from butlers.domain.errors import InvalidArguments, NotFound
from butlers.sdk import SESSIONS, CallContext, Effect, require_trusted_input, tool, uuid7

from .lookup import Row, find_person
from .people import add_alias, shown_person
from .settings import PersonText

# Tables whose rows belong to a person, with the columns that make a row unique within a person.
_OWNED = {
    "aliases": "lower(alias)",
    "contact_ways": "(kind || lower(value))",
    "person_dates": "label",
    "person_notes": None,
    "interactions": None,
    "gifts": None,
    "loans": None,
    "group_members": "group_id::text",
    "relations": "(relation || coalesce(other_id::text, ''))",
}


@tool(callers=SESSIONS, effect=Effect.READ)
async def person_duplicates(
    ctx: CallContext, limit: Annotated[int, Field(ge=1, le=50)] = 10
) -> dict[str, Any]:
    """List pairs that may be one person: a common name, alias or contact."""
    rows = await ctx.connection.fetch(
        """
        WITH pairs AS (
            SELECT least(a.id, b.id) AS first, greatest(a.id, b.id) AS second, 'same name' AS why
            FROM people AS a JOIN people AS b ON lower(b.name) = lower(a.name) AND b.id > a.id
            UNION
            SELECT least(x.person_id, p.id), greatest(x.person_id, p.id), 'alias ' || x.alias
            FROM aliases AS x JOIN people AS p ON lower(p.name) = lower(x.alias) AND p.id <> x.person_id
            UNION
            SELECT least(x.person_id, y.person_id), greatest(x.person_id, y.person_id), 'same ' || x.kind
            FROM contact_ways AS x JOIN contact_ways AS y
              ON lower(y.value) = lower(x.value) AND y.person_id > x.person_id
            WHERE x.kind IN ('phone', 'email', 'chat')
        )
        SELECT pairs.first, pairs.second, min(pairs.why) AS why FROM pairs
        JOIN people AS a ON a.id = pairs.first AND a.merged_into IS NULL
        JOIN people AS b ON b.id = pairs.second AND b.merged_into IS NULL
        WHERE NOT EXISTS (SELECT FROM distinct_people AS d
                          WHERE d.first_id = pairs.first AND d.second_id = pairs.second)
        GROUP BY 1, 2 ORDER BY 1, 2 LIMIT $1
        """,
        limit,
    )
    ids = [key for row in rows for key in (row["first"], row["second"])]
    known = {
        row["id"]: row
        for row in await ctx.connection.fetch("SELECT * FROM people WHERE id = ANY($1)", ids)
    }
    pairs = [
        {
            "people": [shown_person(ctx, known[row[key]]) for key in ("first", "second")],
            "why": row["why"],
        }
        for row in rows
    ]
    lines = [
        f"{known[row['first']]['name']} ↔ {known[row['second']]['name']} ({row['why']})"
        for row in rows
    ]
    return {"pairs": pairs, "text": "\n".join(lines) or "No duplicates found."}


@tool(callers=SESSIONS)
async def person_merge(
    ctx: CallContext, keep: PersonText, other: PersonText, same: bool = True
) -> dict[str, Any]:
    """Merge the other person into the first (name or id); with same = false, remember that they differ."""
    require_trusted_input(ctx, "merge people")
    first, second = await _by_name_or_id(ctx, keep), await _by_name_or_id(ctx, other)
    if first["id"] == second["id"]:
        raise InvalidArguments("both are the same person already")
    if not same:
        low, high = sorted((first["id"], second["id"]))
        await ctx.connection.execute(
            "INSERT INTO distinct_people (id, first_id, second_id) VALUES ($1, $2, $3)"
            " ON CONFLICT DO NOTHING",
            uuid7(),
            low,
            high,
        )
        return {"text": f"{first['name']} and {second['name']} stay two people."}
    await _merge(ctx, first, second)
    text = f"Merged: {second['name']} is {first['name']}. Say “unmerge {first['name']}” to separate them."
    return {**shown_person(ctx, first), "text": text}


@tool(callers=SESSIONS)
async def person_unmerge(ctx: CallContext, person: PersonText) -> dict[str, Any]:
    """Take back the newest merge into a person. Records from before the merge return to their owner."""
    require_trusted_input(ctx, "separate people")
    kept = await _by_name_or_id(ctx, person)
    merge = await ctx.connection.fetchrow(
        "SELECT * FROM person_merges WHERE kept_id = $1 ORDER BY id DESC LIMIT 1", kept["id"]
    )
    if merge is None:
        raise NotFound(f"no one was merged into {kept['name']}")
    for table, ids in merge["moved"].items():
        assert table in _OWNED
        await ctx.connection.execute(
            f"UPDATE {table} SET person_id = $1 WHERE id = ANY($2::uuid[]) AND person_id = $3",
            merge["merged_id"],
            ids,
            kept["id"],
        )
    restored = await ctx.connection.fetchrow(
        "UPDATE people SET merged_into = NULL WHERE id = $1 RETURNING *", merge["merged_id"]
    )
    assert restored is not None
    await ctx.connection.execute(
        "DELETE FROM aliases WHERE person_id = $1 AND lower(alias) = lower($2)",
        kept["id"],
        restored["name"],
    )
    await ctx.connection.execute("DELETE FROM person_merges WHERE id = $1", merge["id"])
    return {"text": f"Separated: {kept['name']} and {restored['name']}."}


async def _merge(ctx: CallContext, first: Row, second: Row) -> None:
    """Move the other's records, except those that the first has as well; the name becomes an alias."""
    moved: dict[str, list[str]] = {}
    for table, unique in _OWNED.items():
        double = f"AND {unique} NOT IN (SELECT {unique} FROM {table} WHERE person_id = $1)"
        own = "AND other_id IS DISTINCT FROM $1" if table == "relations" else ""
        rows = await ctx.connection.fetch(
            f"""
            UPDATE {table} SET person_id = $1
            WHERE person_id = $2 {double if unique else ""} {own} RETURNING id
            """,
            first["id"],
            second["id"],
        )
        moved[table] = [str(row["id"]) for row in rows]
    await ctx.connection.execute(
        """
        UPDATE people AS k SET company = coalesce(k.company, o.company), job = coalesce(k.job, o.job),
            stay_in_touch_days = coalesce(k.stay_in_touch_days, o.stay_in_touch_days)
        FROM people AS o WHERE k.id = $1 AND o.id = $2
        """,
        first["id"],
        second["id"],
    )
    await ctx.connection.execute(
        "UPDATE people SET merged_into = $1 WHERE id = $2", first["id"], second["id"]
    )
    if first["name"].casefold() != second["name"].casefold():
        await add_alias(ctx, first["id"], second["name"])
    await ctx.connection.execute(
        "INSERT INTO person_merges (id, kept_id, merged_id, moved) VALUES ($1, $2, $3, $4)",
        uuid7(),
        first["id"],
        second["id"],
        moved,
    )


async def _by_name_or_id(ctx: CallContext, text: str) -> Row:
    try:
        wanted = UUID(text)
    except ValueError:
        return await find_person(ctx, text)
    row = await ctx.connection.fetchrow(
        "SELECT * FROM people WHERE id = $1 AND merged_into IS NULL", wanted
    )
    if row is None:
        raise NotFound(f"there is no person {text}", hint="person_search returns the ids")
    return row


TOOLS = (person_duplicates, person_merge, person_unmerge)
