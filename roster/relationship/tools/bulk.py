"""The owner's bulk tool: many people from a file, in one transaction per call."""

from __future__ import annotations

from datetime import date, datetime
from typing import Annotated, Any, Self
from uuid import UUID

from pydantic import BaseModel, Field, model_validator

from butlers.sdk import (
    OWNER_ONLY,
    CallContext,
    Trust,
    begin_import,
    contact_address,
    tool,
    uuid7,
)

from .contacts import WayKind
from .interactions import InteractionKind
from .people import add_alias
from .settings import Short, today_of

MAX_ROWS = 1000


class ImportedWay(BaseModel):
    kind: WayKind
    value: Short
    label: Short | None = None


class ImportedDate(BaseModel):
    label: Short = "birthday"
    month: Annotated[int, Field(ge=1, le=12)]
    day: Annotated[int, Field(ge=1, le=31)]
    year: Annotated[int, Field(ge=1000, le=9999)] | None = None

    @model_validator(mode="after")
    def _exists(self) -> Self:
        date(self.year or 2000, self.month, self.day)  # 29 February without a year exists
        return self


class ImportedInteraction(BaseModel):
    at: datetime
    kind: InteractionKind = "met"
    summary: Annotated[str, Field(max_length=2000)] | None = None


class ImportedPerson(BaseModel):
    key: Annotated[
        str, Field(min_length=1, max_length=100)
    ]  # the same in each import of the person
    name: Short
    aliases: list[Short] = []
    company: Short | None = None
    job: Short | None = None
    contacts: list[ImportedWay] = []
    dates: list[ImportedDate] = []
    notes: list[Annotated[str, Field(min_length=1, max_length=2000)]] = []
    groups: list[Short] = []
    interactions: list[ImportedInteraction] = []


@tool(callers=OWNER_ONLY)
async def relationship_import(
    ctx: CallContext,
    import_id: UUID,
    source: Short,
    people: Annotated[list[ImportedPerson], Field(max_length=MAX_ROWS)],
    trusted: bool = True,
) -> dict[str, Any]:
    """Store the people of a file, each key once. `undo` with import_id as request_id removes them.

    A person whose name is known exactly once gets only what is missing.
    """
    trust = Trust.OWNER if trusted else Trust.OUTSIDE
    await begin_import(ctx, import_id, source=source, trust=trust)
    known = await _known_keys(ctx, [one.key for one in people])
    added = completed = 0
    for one in people:
        if one.key in known:
            continue
        known.add(one.key)
        person_id, is_new = await _person(ctx, one)
        await _details(ctx, person_id, one)
        added, completed = added + is_new, completed + (not is_new)
    return {"added": added, "completed": completed, "known": len(people) - added - completed}


async def _known_keys(ctx: CallContext, keys: list[str]) -> set[str]:
    rows = await ctx.connection.fetch(
        "SELECT import_key FROM people WHERE import_key = ANY($1)", keys
    )
    return {row["import_key"] for row in rows}


async def _person(ctx: CallContext, one: ImportedPerson) -> tuple[UUID, bool]:
    """Return the person of this name if there is exactly one without a key, else a new one."""
    rows = await ctx.connection.fetch(
        """
        SELECT id, import_key FROM people
        WHERE merged_into IS NULL AND lower(name) = lower($1) LIMIT 2
        """,
        one.name.strip(),
    )
    if len(rows) == 1 and rows[0]["import_key"] is None:
        await ctx.connection.execute(
            """
            UPDATE people SET import_key = $2, company = coalesce(company, $3), job = coalesce(job, $4)
            WHERE id = $1
            """,
            rows[0]["id"],
            one.key,
            one.company,
            one.job,
        )
        return rows[0]["id"], False
    person_id = uuid7()
    await ctx.connection.execute(
        "INSERT INTO people (id, name, company, job, import_key) VALUES ($1, $2, $3, $4, $5)",
        person_id,
        one.name.strip(),
        one.company,
        one.job,
        one.key,
    )
    return person_id, True


async def _details(ctx: CallContext, person_id: UUID, one: ImportedPerson) -> None:
    run = ctx.connection
    for alias in one.aliases:
        await add_alias(ctx, person_id, alias)
    await run.executemany(
        """
        INSERT INTO contact_ways (id, person_id, kind, value, label, address)
        VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING
        """,
        [
            (
                uuid7(),
                person_id,
                way.kind,
                way.value.strip(),
                way.label,
                contact_address(ctx, way.kind, way.value),
            )
            for way in one.contacts
        ],
    )
    await run.executemany(
        """
        INSERT INTO person_dates (id, person_id, label, month, day, year) VALUES ($1, $2, $3, $4, $5, $6)
        ON CONFLICT DO NOTHING
        """,
        [(uuid7(), person_id, d.label.casefold(), d.month, d.day, d.year) for d in one.dates],
    )
    await run.executemany(
        "INSERT INTO person_notes (id, person_id, text, noted_on) VALUES ($1, $2, $3, $4)",
        [(uuid7(), person_id, note, today_of(ctx)) for note in one.notes],
    )
    await run.executemany(
        """
        INSERT INTO interactions (id, person_id, kind, happened_at, summary)
        VALUES ($1, $2, $3, $4, $5)
        """,
        [(uuid7(), person_id, i.kind, i.at, i.summary) for i in one.interactions],
    )
    for group in one.groups:
        await _join(ctx, person_id, group)


async def _join(ctx: CallContext, person_id: UUID, group: str) -> None:
    await ctx.connection.execute(
        "INSERT INTO groups (id, name) VALUES ($1, $2) ON CONFLICT (lower(name)) DO NOTHING",
        uuid7(),
        group.strip(),
    )
    await ctx.connection.execute(
        """
        INSERT INTO group_members (id, group_id, person_id)
        SELECT $1, id, $2 FROM groups WHERE lower(name) = lower($3) ON CONFLICT DO NOTHING
        """,
        uuid7(),
        person_id,
        group.strip(),
    )


TOOLS = (relationship_import,)
