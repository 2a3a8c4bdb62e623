"""Tools to add, change and find people, and to note something about them."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from pydantic import Field

from butlers.domain.errors import InvalidArguments
from butlers.sdk import SESSIONS, CallContext, Effect, shown_source, tool, uuid7

from .lookup import Row, find_or_create, insert_person, read_name
from .settings import LongText, PersonText, Short, today_of


@tool(callers=SESSIONS)
async def person_save(
    ctx: CallContext,
    name: Short,
    new_name: Short | None = None,
    aliases: Annotated[list[Short], Field(max_length=20)] | None = None,
    company: Short | None = None,
    job: Short | None = None,
    archived: bool | None = None,
    new: bool = False,
) -> dict[str, Any]:
    """Change a person, or add one; new = true adds one although a similar name is known.

    aliases are added to the known ones.
    """
    if new:
        await _refuse_same_name(ctx, read_name(name))
        person, is_new = await insert_person(ctx, read_name(name)), True
    else:
        person, is_new = await find_or_create(ctx, name)
    given = {
        "name": read_name(new_name) if new_name else None,
        "company": company,
        "job": job,
        "is_archived": archived,
    }
    changes = {key: value for key, value in given.items() if value is not None}
    if changes:
        columns = ", ".join(f"{key} = ${number}" for number, key in enumerate(changes, 2))
        changed = await ctx.connection.fetchrow(
            f"UPDATE people SET {columns} WHERE id = $1 RETURNING *",
            person["id"],
            *changes.values(),
        )
        assert changed is not None
        person = changed
    for alias in aliases or []:
        await add_alias(ctx, person["id"], alias)
    text = f"{'Added' if is_new else 'Changed'}: {person['name']}."
    return {**shown_person(ctx, person), "text": text}


@tool(callers=SESSIONS, effect=Effect.READ)
async def person_search(
    ctx: CallContext,
    query: Annotated[str, Field(max_length=100)] | None = None,
    group: Short | None = None,
    limit: Annotated[int, Field(ge=1, le=100)] = 20,
    page: str | None = None,
) -> dict[str, Any]:
    """Find people by the words of a name, alias, company, contact or note; without a query, all of them.

    page: `next_page` of the answer before.
    """
    rows = await ctx.connection.fetch(
        f"""
        WITH {"found AS MATERIALIZED (" + _FOUND + ")" if query else "found AS (TABLE people)"}
        SELECT p.* FROM found AS p
        WHERE merged_into IS NULL AND NOT is_archived
          AND ($2::text IS NULL OR EXISTS (
               SELECT FROM group_members AS m JOIN groups AS g ON g.id = m.group_id
               WHERE m.person_id = p.id AND lower(g.name) = lower($2)))
          AND ($3::text IS NULL OR (lower(p.name), p.id) > ($3, $4))
          AND ($1::text IS NULL OR $1 <> '') AND ($6::text IS NULL OR $6 <> '')
        ORDER BY lower(p.name), p.id LIMIT $5
        """,
        _query(query),
        group,
        *_read_page(page),
        limit + 1,
        query and query.strip().casefold(),
    )
    found, more = rows[:limit], len(rows) > limit
    following = f"{found[-1]['name'].lower()}\n{found[-1]['id']}" if more else None
    return {
        "people": [shown_person(ctx, row) for row in found],
        "next_page": following,
        "text": "\n".join(_line(row) for row in found) or "No one found.",
    }


@tool(callers=SESSIONS)
async def note_add(ctx: CallContext, person: PersonText, text: LongText) -> dict[str, Any]:
    """Remember something about a person; an unknown name becomes a new person."""
    row, is_new = await find_or_create(ctx, person)
    note_id = uuid7()
    await ctx.connection.execute(
        "INSERT INTO person_notes (id, person_id, text, noted_on) VALUES ($1, $2, $3, $4)",
        note_id,
        row["id"],
        text.strip(),
        today_of(ctx),
    )
    said = f"Noted about {row['name']}{' (new)' if is_new else ''}: {text.strip()}"
    return {"id": str(note_id), "person": row["name"], "text": said}


async def add_alias(ctx: CallContext, person_id: UUID, alias: str) -> None:
    await ctx.connection.execute(
        """
        INSERT INTO aliases (id, person_id, alias) VALUES ($1, $2, $3)
        ON CONFLICT (person_id, lower(alias)) DO NOTHING
        """,
        uuid7(),
        person_id,
        read_name(alias),
    )


def shown_person(ctx: CallContext, row: Row) -> dict[str, Any]:
    optional = {key: row[key] for key in ("company", "job") if row[key]}
    return {
        "id": str(row["id"]),
        "name": row["name"],
        **optional,
        **({"archived": True} if row["is_archived"] else {}),
        **shown_source(ctx, row),
    }


async def _refuse_same_name(ctx: CallContext, name: str) -> None:
    if await ctx.connection.fetchval(
        "SELECT true FROM people WHERE merged_into IS NULL AND lower(name) = lower($1) LIMIT 1",
        name,
    ):
        raise InvalidArguments(
            f"there is a person named {name} already", hint="add a last name to tell them apart"
        )


# $1: the words as a prefix query; $6: the text as written.
_FOUND = """
    SELECT * FROM people WHERE id IN (SELECT id FROM people WHERE words @@ to_tsquery('simple', $1)
             UNION ALL SELECT person_id FROM person_notes WHERE words @@ to_tsquery('simple', $1)
             UNION ALL SELECT person_id FROM aliases WHERE lower(alias) = $6
             UNION ALL SELECT person_id FROM contact_ways WHERE lower(value) = $6)
"""


def _query(text: str | None) -> str | None:
    if text is None:
        return None
    words = "".join(char if char.isalnum() else " " for char in text).split()
    if not words:
        raise InvalidArguments("the query has no words", hint="leave it out to list everyone")
    return " & ".join(f"{word}:*" for word in words)


def _read_page(page: str | None) -> tuple[str | None, UUID | None]:
    if page is None:
        return None, None
    name, _, last = page.rpartition("\n")
    try:
        return name, UUID(last)
    except ValueError:
        raise InvalidArguments(
            f"{page!r} is not a page", hint="pass next_page of the answer before"
        ) from None


def _line(row: Row) -> str:
    more = ", ".join(filter(None, (row["job"], row["company"])))
    return f"{row['name']} ({more})" if more else str(row["name"])


TOOLS = (person_save, person_search, note_add)
