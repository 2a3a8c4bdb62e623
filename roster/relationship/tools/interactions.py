"""Tools for meetings, calls and messages."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import Field

from butlers.domain.errors import InvalidArguments
from butlers.sdk import (
    SESSIONS,
    CallContext,
    Effect,
    PeriodText,
    When,
    read_period,
    read_when,
    shown_source,
    tool,
    uuid7,
)

from .lookup import Row, find_or_create, find_person
from .settings import LongText, PersonText, ago_words, day_words, today_of

InteractionKind = Literal["met", "call", "message", "other"]
_VERBS = {"met": "Met", "call": "Talked to", "message": "Wrote with", "other": "Contact with"}


@tool(callers=SESSIONS)
async def interaction_log(
    ctx: CallContext,
    people: Annotated[list[PersonText], Field(min_length=1, max_length=20)],
    kind: InteractionKind = "met",
    when: When = "now",
    summary: LongText | None = None,
) -> dict[str, Any]:
    """Record a meeting, call or message with one or more people; unknown names become new people."""
    at = read_when(ctx, when)
    ids, names = [], []
    for text in dict.fromkeys(people):
        person, is_new = await find_or_create(ctx, text)
        record_id = uuid7()
        await ctx.connection.execute(
            """
            INSERT INTO interactions (id, person_id, kind, happened_at, summary)
            VALUES ($1, $2, $3, $4, $5)
            """,
            record_id,
            person["id"],
            kind,
            at,
            summary,
        )
        ids.append(str(record_id))
        names.append(f"{person['name']} (new)" if is_new else person["name"])
    day = day_words(at.astimezone(ctx.zone).date(), today_of(ctx))
    about = f": {summary}" if summary else "."
    text = f"Noted: {_VERBS[kind].lower()} {' and '.join(names)}, {day}{about}"
    return {"ids": ids, "text": text}


@tool(callers=SESSIONS, effect=Effect.READ)
async def interaction_list(
    ctx: CallContext,
    person: PersonText | None = None,
    kind: InteractionKind | None = None,
    period: PeriodText = "all",
    limit: Annotated[int, Field(ge=1, le=100)] = 10,
    page: str | None = None,
) -> dict[str, Any]:
    """List meetings, calls and messages, newest first; limit 1: when it last happened."""
    who, days = (await find_person(ctx, person) if person else None), read_period(ctx, period)
    person_filter = "i.person_id = $1" if who else "$1::uuid IS NULL"
    rows = await ctx.connection.fetch(
        f"""
        SELECT i.*, p.name FROM interactions AS i JOIN people AS p ON p.id = i.person_id
        WHERE {person_filter} AND ($2::text IS NULL OR i.kind = $2)
          AND i.happened_at >= $3 AND i.happened_at < $4
          AND ($5::uuid IS NULL OR (i.happened_at, i.id) <
               (SELECT happened_at, id FROM interactions WHERE id = $5))
        ORDER BY i.happened_at DESC, i.id DESC LIMIT $6
        """,
        who["id"] if who else None,
        kind,
        days.start,
        days.end,
        _read_page(page),
        limit + 1,
    )
    found, more = rows[:limit], len(rows) > limit
    lines = [_line(ctx, row) for row in found]
    nobody = f"No contact with {who['name']} is recorded." if who else "No contacts are recorded."
    return {
        "interactions": [_shown(ctx, row) for row in found],
        "next_page": str(found[-1]["id"]) if more else None,
        "text": "\n".join(lines) or nobody,
    }


def _line(ctx: CallContext, row: Row) -> str:
    today, day = today_of(ctx), row["happened_at"].astimezone(ctx.zone).date()
    about = f": {row['summary']}" if row["summary"] else ""
    when = day_words(day, today)
    ago = "" if abs((today - day).days) <= 1 else f" ({ago_words(day, today)})"
    return f"{_VERBS[row['kind']]} {row['name']}, {when}{ago}{about}"


def _shown(ctx: CallContext, row: Row) -> dict[str, Any]:
    return {
        "id": str(row["id"]),
        "person": row["name"],
        "kind": row["kind"],
        "at": row["happened_at"].astimezone(ctx.zone).isoformat(timespec="minutes"),
        **({"summary": row["summary"]} if row["summary"] else {}),
        **shown_source(ctx, row),
    }


def _read_page(page: str | None) -> UUID | None:
    try:
        return UUID(page) if page else None
    except ValueError:
        raise InvalidArguments(
            f"{page!r} is not a page", hint="pass next_page of the answer before"
        ) from None


TOOLS = (interaction_log, interaction_list)
