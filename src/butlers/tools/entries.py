"""Entries: rows of several record tables of one butler, found, changed and deleted by one tool each.

A butler names its kinds (``RecordKind``) and declares three short tools on them. So a model has one way to
find or correct anything, and a domain does not need three tools per table.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict, ValidationError

from butlers.domain.errors import InvalidArguments, NotFound
from butlers.tools.context import CallContext
from butlers.tools.dates import Period, read_period
from butlers.tools.records import shown_source

MAX_WORDS = 10
EntryRow = Mapping[str, Any]


class EntryChanges(BaseModel):
    """Base of the fields of one kind that may be changed. Unknown fields are errors."""

    model_config = ConfigDict(extra="forbid")


async def keep_values(ctx: CallContext, row: EntryRow, given: dict[str, Any]) -> dict[str, Any]:
    """Store the given values as they are."""
    return given


@dataclass(frozen=True, slots=True)
class RecordKind:
    table: str
    at: str  # column of its time or day
    words: str  # expression that the table's text index is made of
    changes: type[EntryChanges]
    line: Callable[[EntryRow], str]  # the entry in a few words
    prepare: Callable[[CallContext, EntryRow, dict[str, Any]], Awaitable[dict[str, Any]]] = (
        keep_values
    )
    dependents: tuple[str, ...] = ()  # statements that run before a row is deleted; $1 is its id


EntryKinds = Mapping[str, RecordKind]


@dataclass(frozen=True, slots=True)
class EntryQuery:
    query: str | None = None
    kind: str | None = None
    period: str = "all"
    limit: int = 20
    after: UUID | None = None


async def find_entries(ctx: CallContext, kinds: EntryKinds, asked: EntryQuery) -> dict[str, Any]:
    """Return entries with words or of a kind, newest first, one page at a time."""
    if asked.after is not None and asked.kind is None:
        raise InvalidArguments("pages need a kind", hint=f"pass kind: {', '.join(kinds)}")
    span = read_period(ctx, asked.period)
    words = " & ".join(f"{word}:*" for word in _words(asked.query or "")) or None
    found: list[dict[str, Any]] = []
    for name in (asked.kind,) if asked.kind else kinds:
        rows = await _matching(ctx, kinds[name], words, span, asked)
        found += [shown_entry(ctx, name, kinds[name], row) for row in rows]
    found.sort(key=lambda entry: (entry["at"], entry["id"]), reverse=True)
    shown = found[: asked.limit]
    more = {"next": shown[-1]["id"]} if asked.kind and len(found) > asked.limit else {}
    lines = [f"{entry['when']}: {entry['text']}" for entry in shown]
    return {"entries": shown, **more, "text": "\n".join(lines)}


async def change_entry(
    ctx: CallContext, kinds: EntryKinds, record_id: UUID, changes: dict[str, Any]
) -> dict[str, Any]:
    """Change fields of one entry of any kind."""
    name, row = await find_entry(ctx, kinds, record_id)
    kind = kinds[name]
    columns = await kind.prepare(ctx, row, _checked(kind, changes))
    if columns:
        named = ", ".join(f"{column} = ${number}" for number, column in enumerate(columns, 2))
        await ctx.connection.execute(
            f"UPDATE {kind.table} SET {named} WHERE id = $1", record_id, *columns.values()
        )
    _, new = await find_entry(ctx, kinds, record_id)
    text = f"Changed: {kind.line(new)} (was {kind.line(row)})."
    return {**shown_entry(ctx, name, kind, new), "text": text}


async def delete_entry(ctx: CallContext, kinds: EntryKinds, record_id: UUID) -> dict[str, Any]:
    """Delete one entry of any kind and what depends on it."""
    name, row = await find_entry(ctx, kinds, record_id)
    kind = kinds[name]
    # Dependents go first and explicitly, so that undo restores them after the entry.
    for statement in (*kind.dependents, f"DELETE FROM {kind.table} WHERE id = $1"):
        await ctx.connection.execute(statement, record_id)
    return {"kind": name, "text": f"Deleted: {kind.line(row)}. Say “undo” to bring it back."}


async def find_entry(ctx: CallContext, kinds: EntryKinds, record_id: UUID) -> tuple[str, EntryRow]:
    for name, kind in kinds.items():
        row = await ctx.connection.fetchrow(f"SELECT * FROM {kind.table} WHERE id = $1", record_id)
        if row is not None:
            return name, dict(row)
    raise NotFound(f"there is no entry {record_id}", hint="use an id that a list returned")


def shown_entry(ctx: CallContext, name: str, kind: RecordKind, row: EntryRow) -> dict[str, Any]:
    at = row[kind.at]
    return {
        "id": str(row["id"]),
        "kind": name,
        "text": kind.line(row),
        **({"notes": row["notes"]} if row.get("notes") else {}),
        "at": at.isoformat() if at else "",
        "when": _when(ctx, at),
        **shown_source(ctx, row),
    }


async def _matching(
    ctx: CallContext, kind: RecordKind, words: str | None, span: Period, asked: EntryQuery
) -> list[Any]:
    conditions, source = [_in_period(kind, span)], kind.table
    values: list[Any] = [span.start, span.end, asked.limit + 1]
    if asked.after is not None:
        values.append(asked.after)
        last = f"(SELECT {kind.at}, id FROM {kind.table} WHERE id = $4)"
        conditions.append(f"({kind.at}, id) < {last}")
    if words is not None:
        # Materialized, so that the text index is used: the planner does not know how rare a word is.
        values.append(words)
        match = f"to_tsvector('simple', {kind.words}) @@ to_tsquery('simple', ${len(values)})"
        source = (
            f"(WITH found AS MATERIALIZED (SELECT * FROM {kind.table} WHERE {match}) TABLE found)"
        )
    rows: list[Any] = await ctx.connection.fetch(
        f"""
        SELECT * FROM {source} AS entry WHERE {" AND ".join(conditions)}
        ORDER BY {kind.at} DESC, id DESC LIMIT $3
        """,
        *values,
    )
    return rows


def _in_period(kind: RecordKind, span: Period) -> str:
    """Compare with the period; an entry without a time counts only for "all"."""
    everything = span.last_day - span.first_day > timedelta(days=36_500)
    missing = f" OR {kind.at} IS NULL" if everything else ""
    return f"({kind.at} >= $1 AND {kind.at} < $2{missing})"


def _checked(kind: RecordKind, changes: dict[str, Any]) -> dict[str, Any]:
    allowed = ", ".join(kind.changes.model_fields)
    try:
        given = kind.changes.model_validate(changes)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise InvalidArguments(f"{where}: {first['msg']}", hint=f"fields: {allowed}") from None
    found = {key: getattr(given, key) for key in given.model_fields_set}
    if not found:
        raise InvalidArguments("there is no change", hint=f"fields: {allowed}")
    return found


def _words(query: str) -> list[str]:
    """Return the words of a query, without the operators of a text search."""
    spaced = "".join(letter if letter.isalnum() else " " for letter in query)
    return spaced.split()[:MAX_WORDS]


def _when(ctx: CallContext, at: datetime | date | None) -> str:
    if isinstance(at, datetime):
        return f"{at.astimezone(ctx.zone):%-d %B %Y, %H:%M}"
    return f"{at:%-d %B %Y}" if at else "no date"
