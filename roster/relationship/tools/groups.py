"""Tools for groups of people and for relations between them."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from butlers.domain.errors import InvalidArguments, NotFound
from butlers.sdk import SESSIONS, CallContext, Effect, tool, uuid7

from .lookup import Row, find_or_create, find_person, read_relation
from .settings import PersonText, Short

Names = Annotated[list[PersonText], Field(max_length=50)]


@tool(callers=SESSIONS)
async def group_save(
    ctx: CallContext, name: Short, add: Names | None = None, remove: Names | None = None
) -> dict[str, Any]:
    """Create a group such as "book club", or change its members."""
    group = await ctx.connection.fetchrow(
        """
        INSERT INTO groups (id, name) VALUES ($1, $2)
        ON CONFLICT (lower(name)) DO UPDATE SET name = groups.name RETURNING *
        """,
        uuid7(),
        " ".join(name.split()),
    )
    assert group is not None
    for text in add or []:
        person, _ = await find_or_create(ctx, text)
        await ctx.connection.execute(
            """
            INSERT INTO group_members (id, group_id, person_id) VALUES ($1, $2, $3)
            ON CONFLICT DO NOTHING
            """,
            uuid7(),
            group["id"],
            person["id"],
        )
    for text in remove or []:
        person = await find_person(ctx, text)
        await ctx.connection.execute(
            "DELETE FROM group_members WHERE group_id = $1 AND person_id = $2",
            group["id"],
            person["id"],
        )
    members = await _members(ctx, group)
    text = f"{group['name']}: {', '.join(members) or 'no members'}."
    return {"id": str(group["id"]), "name": group["name"], "members": members, "text": text}


@tool(callers=SESSIONS, effect=Effect.READ)
async def group_list(ctx: CallContext, name: Short | None = None) -> dict[str, Any]:
    """List groups with their members."""
    rows = await ctx.connection.fetch(
        "SELECT * FROM groups WHERE $1::text IS NULL OR lower(name) = lower($1) ORDER BY name LIMIT 100",
        name,
    )
    if name and not rows:
        raise NotFound(f"there is no group {name!r}", hint="create it with group_save")
    groups = [
        {"id": str(row["id"]), "name": row["name"], "members": await _members(ctx, row)}
        for row in rows
    ]
    lines = [f"{group['name']}: {', '.join(group['members'])}" for group in groups]
    return {"groups": groups, "text": "\n".join(lines) or "No groups yet."}


@tool(callers=SESSIONS)
async def relation_save(
    ctx: CallContext, person: PersonText, relation: Short, other: PersonText | None = None
) -> dict[str, Any]:
    """Store that a person is someone's relation, e.g. "sister". Without other: the owner's."""
    row, is_new = await find_or_create(ctx, person)
    word = read_relation(relation)
    whose = (await find_or_create(ctx, other))[0] if other else None
    if whose and whose["id"] == row["id"]:
        raise InvalidArguments("both people are the same")
    record_id = uuid7()
    await ctx.connection.execute(
        """
        INSERT INTO relations (id, person_id, relation, other_id) VALUES ($1, $2, $3, $4)
        ON CONFLICT DO NOTHING
        """,
        record_id,
        row["id"],
        word,
        whose and whose["id"],
    )
    new = " (new)" if is_new else ""
    owner = f"{whose['name']}’s" if whose else "your"
    return {"id": str(record_id), "text": f"Noted: {row['name']}{new} is {owner} {word}."}


async def _members(ctx: CallContext, group: Row) -> list[str]:
    rows = await ctx.connection.fetch(
        """
        SELECT p.name FROM group_members AS m JOIN people AS p ON p.id = m.person_id
        WHERE m.group_id = $1 ORDER BY lower(p.name) LIMIT 200
        """,
        group["id"],
    )
    return [row["name"] for row in rows]


TOOLS = (group_save, group_list, relation_save)
