"""Records: rows of domain tables with their source and history, and the tools that undo and export them.

The database triggers of ``make_record_table`` (migration core_010) stamp each row with its provenance and
keep each change, so a domain tool writes plain SQL. Nothing here knows a single domain table.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Annotated, Any
from uuid import UUID

import asyncpg
from pydantic import Field

from butlers.db.database import Connection, set_provenance
from butlers.domain.caller import OWNER_ONLY, PEERS, SESSIONS
from butlers.domain.errors import InvalidArguments, NotFound, StateConflict
from butlers.domain.provenance import Provenance, Trust
from butlers.domain.queues import ROUTES
from butlers.queue.queries import open_keys
from butlers.tools.context import CallContext, require_trusted_input
from butlers.tools.declaration import Effect, tool

PROVENANCE = ("request_id", "session_id", "sender", "trust", "created_at", "updated_at")
MAX_LABEL = 60  # characters of a value in a sentence
_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
# Schedules and reminders are no record table: each run changes them. Their tools record what a person did.
SCHEDULES = "scheduled_tasks"
_RUN_COLUMNS = ["updated_at", "next_run_at", "last_run_at", "last_result"]
_SHOWN_CHANGES = 50  # of one undo, in its answer
_VERBS = {"insert": "removed", "update": "restored", "delete": "brought back"}

Table = Annotated[str, Field(min_length=1, max_length=63)]


def shown_source(ctx: CallContext, row: asyncpg.Record | Mapping[str, Any]) -> dict[str, Any]:
    """Return the source of a row that other people's words made, and taint the reading session.

    Return nothing for the owner's own rows. A tool merges the result into the row that it returns.
    """
    if row["trust"] == Trust.OWNER:
        return {}
    ctx.outside.add(f"a record of {row['sender'] or 'an unknown sender'}")
    return {"source": {"sender": row["sender"], "trust": row["trust"]}}


async def begin_import(
    ctx: CallContext, import_id: UUID, *, source: str, trust: Trust = Trust.OUTSIDE
) -> None:
    """Mark what this call writes as part of an import, so that ``undo(import_id)`` removes it all.

    Several calls may write the same import. Files with texts of other people are not trusted.
    """
    provenance = Provenance(trust, f"import of {source}", import_id)
    await set_provenance(ctx.connection, provenance)


@dataclass(frozen=True, slots=True)
class RecordChange:
    id: int
    table: str
    record_id: UUID
    operation: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None

    @classmethod
    def from_row(cls, row: asyncpg.Record) -> RecordChange:
        return cls(
            row["id"],
            row["table_name"],
            row["record_id"],
            row["operation"],
            row["before"],
            row["after"],
        )

    def label(self, labels: Mapping[str, str]) -> str:
        """Name the record in a sentence, with the values that it has once the change is undone."""
        state = self.before or self.after or {}
        if self.table == SCHEDULES:
            said = state.get("message")
            named = state.get("title") or f"schedule {state.get('name')}"
            return f"reminder “{said}”" if said else str(named)
        template = labels.get(self.table, self.table)

        def value(found: re.Match[str]) -> str:
            text = "" if state.get(found[1]) is None else str(state[found[1]])
            return text if len(text) <= MAX_LABEL else f"{text[:MAX_LABEL]}…"

        return " ".join(_PLACEHOLDER.sub(value, template).split()) or self.table


@tool(callers=SESSIONS)
async def undo(ctx: CallContext, request_id: UUID | None = None) -> dict[str, Any]:
    """Undo all that the newest message changed in this butler's records, or the message request_id."""
    require_trusted_input(ctx, "undo changes")
    undone = await undo_request(ctx.connection, request_id, besides=ctx.caller.request_id)
    if not undone:
        raise NotFound("there is nothing to undo", hint="only changes of records can be undone")
    shown, more = undone[:_SHOWN_CHANGES], len(undone) - _SHOWN_CHANGES
    texts = list(dict.fromkeys(f"{one['what']} {one['result']}" for one in shown))
    said = "; ".join([*texts, f"and {more} more changes taken back"] if more > 0 else texts)
    return {"undone": shown, "count": len(undone), "text": said}


async def undo_request(
    connection: Connection, request_id: UUID | None, besides: UUID | None = None
) -> list[dict[str, Any]]:
    """Undo what a request changed, or the newest change if none is named. Return what was undone."""
    changes = await _undoable(connection, request_id, besides=besides)
    if not changes:
        return []
    labels = await _labels(connection)
    await connection.execute("SELECT set_config('butlers.undo', 'on', true)")
    # A cascade logs the dependent rows after the row that they belong to.
    await connection.execute("SET CONSTRAINTS ALL DEFERRED")
    for table, run in groupby(changes, key=lambda c: c.table if c.operation == "insert" else None):
        if table is None or table == SCHEDULES:
            for change in run:
                await _revert(connection, change, labels)
        else:
            await _remove(connection, table, list(run), labels)
    await _check_references(connection, changes[0], labels)
    await connection.execute(
        "UPDATE record_changes SET undone_at = now() WHERE id = ANY($1)", [c.id for c in changes]
    )
    return [_undone(change, labels) for change in changes]


@tool(callers=PEERS, effect=Effect.READ)
async def undoable(
    ctx: CallContext, request_ids: Annotated[list[UUID], Field(max_length=100)]
) -> dict[str, Any]:
    """Return which of these messages changed something that can be undone, and which are still worked on."""
    # In this order: a message that ends between the two queries has its changes in the second.
    waiting = await open_keys(ctx.connection, ROUTES, [str(one) for one in request_ids])
    changed = await ctx.connection.fetch(
        "SELECT DISTINCT request_id FROM record_changes"
        " WHERE request_id = ANY($1) AND undone_at IS NULL AND NOT is_undo",
        request_ids,
    )
    return {"undoable": [str(row["request_id"]) for row in changed], "open": waiting}


async def schedule_state(connection: Connection, task_id: UUID) -> dict[str, Any] | None:
    """Return the row of a schedule in the form in which changes keep it."""
    state: dict[str, Any] | None = await connection.fetchval(
        "SELECT to_jsonb(task) FROM scheduled_tasks AS task WHERE id = $1", task_id
    )
    return state


async def keep_schedule_change(
    ctx: CallContext, task_id: UUID, before: dict[str, Any] | None
) -> None:
    """Record that a tool created, changed or deleted a schedule, so that it can be undone."""
    after, source = await schedule_state(ctx.connection, task_id), ctx.provenance
    await ctx.connection.execute(
        """
        INSERT INTO record_changes (table_name, record_id, operation, before, after, request_id,
                                    session_id, sender, trust)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
        """,
        SCHEDULES,
        task_id,
        "insert" if before is None else "delete" if after is None else "update",
        before,
        after,
        source.request_id,
        source.session_id,
        source.sender,
        source.trust,
    )


@tool(callers=SESSIONS, effect=Effect.READ)
async def record_history(ctx: CallContext, record_id: UUID) -> dict[str, Any]:
    """List the changes of one record, oldest first, with their source."""
    rows = await ctx.connection.fetch(
        "SELECT * FROM record_changes WHERE record_id = $1 ORDER BY id", record_id
    )
    if not rows:
        raise NotFound(f"there is no record {record_id}", hint="use an id that a list returned")
    return {"changes": [{**_shown_change(row, ctx), **shown_source(ctx, row)} for row in rows]}


@tool(callers=OWNER_ONLY, effect=Effect.READ)
async def record_tables(ctx: CallContext) -> dict[str, Any]:
    """List the tables of records that this butler keeps, with their numbers of rows."""
    labels = await _labels(ctx.connection)
    counts = {
        name: await ctx.connection.fetchval(f"SELECT count(*) FROM {_quoted(name)}")
        for name in labels
    }
    return {"tables": [{"name": name, "rows": counts[name]} for name in labels]}


@tool(callers=OWNER_ONLY, effect=Effect.READ)
async def record_export(
    ctx: CallContext,
    table: Table,
    after: UUID | None = None,
    limit: Annotated[int, Field(ge=1, le=1000)] = 500,
) -> dict[str, Any]:
    """Return the rows of a table in the order of their ids. For the next page pass the last id as after."""
    await _check_table(ctx.connection, table)
    rows = await ctx.connection.fetch(
        f"""
        SELECT to_jsonb(record) AS row FROM {_quoted(table)} AS record
        WHERE $1::uuid IS NULL OR id > $1 ORDER BY id LIMIT $2
        """,
        after,
        limit,
    )
    return {"rows": [row["row"] for row in rows]}


@tool(callers=OWNER_ONLY, effect=Effect.READ)
async def record_list(
    ctx: CallContext,
    table: Table,
    query: Annotated[str, Field(max_length=200)] = "",
    request_id: UUID | None = None,
    before: UUID | None = None,
    limit: Annotated[int, Field(ge=1, le=500)] = 50,
) -> dict[str, Any]:
    """List the rows of a table, newest first, optionally those that contain the query or that one message
    made. For the next page pass the last id as before."""
    await _check_table(ctx.connection, table)
    rows = await ctx.connection.fetch(
        f"""
        SELECT to_jsonb(record) AS row FROM {_quoted(table)} AS record
        WHERE ($1 = '' OR position(lower($1) IN lower(to_jsonb(record)::text)) > 0)
          AND ($2::uuid IS NULL OR request_id = $2) AND ($3::uuid IS NULL OR id < $3)
        ORDER BY id DESC LIMIT $4
        """,
        query,
        request_id,
        before,
        limit,
    )
    return {"rows": [row["row"] for row in rows]}


@tool(callers=OWNER_ONLY)
async def record_update(
    ctx: CallContext, table: Table, record_id: UUID, values: dict[str, Any]
) -> dict[str, Any]:
    """Correct columns of one row. undo takes it back."""
    await _check_table(ctx.connection, table)
    columns = await _columns(ctx.connection, table)
    fixed = {"id", *PROVENANCE}
    wrong = [name for name in values if name not in columns or name in fixed]
    if wrong or not values:
        known = ", ".join(name for name in columns if name not in fixed)
        raise InvalidArguments(
            f"{wrong[0]!r} cannot be changed" if wrong else "there is nothing to change",
            hint=f"columns: {known}",
        )
    named = ", ".join(_quoted(name) for name in values)
    row = await _changing(
        ctx.connection,
        f"""
        UPDATE {_quoted(table)} AS record SET ({named}) = (
            SELECT {named} FROM jsonb_populate_record(NULL::{_quoted(table)}, $2::jsonb)
        ) WHERE id = $1 RETURNING to_jsonb(record) AS row
        """,
        record_id,
        values,
    )
    return {"row": row}


@tool(callers=OWNER_ONLY)
async def record_delete(ctx: CallContext, table: Table, record_id: UUID) -> dict[str, Any]:
    """Delete one row and what belongs to it. undo brings it back."""
    await _check_table(ctx.connection, table)
    row = await _changing(
        ctx.connection,
        f"DELETE FROM {_quoted(table)} AS record WHERE id = $1 RETURNING to_jsonb(record) AS row",
        record_id,
    )
    return {"row": row}


async def _changing(connection: Connection, sql: str, record_id: UUID, *values: Any) -> Any:
    """Run a statement on one row, and raise typed errors for a missing row and for wrong values."""
    try:
        async with connection.transaction():
            row = await connection.fetchval(sql, record_id, *values)
    except (asyncpg.DataError, asyncpg.IntegrityConstraintViolationError) as error:
        raise InvalidArguments(f"the value is not accepted: {error}") from error
    if row is None:
        raise NotFound(f"there is no record {record_id}", hint="it may have been deleted")
    return row


async def _check_table(connection: Connection, table: str) -> None:
    if table not in await _labels(connection):
        raise InvalidArguments(
            f"there is no table {table!r}", hint="record_tables lists the tables"
        )


async def _undoable(
    connection: Connection, request_id: UUID | None, *, besides: UUID | None
) -> list[RecordChange]:
    """Return the changes to undo, newest first: those of a request, or of the newest call."""
    rows = await connection.fetch(
        """
        WITH newest AS (
            SELECT request_id, changed_at FROM record_changes
            WHERE undone_at IS NULL AND NOT is_undo
              AND ($1::uuid IS NULL OR request_id = $1)
              AND ($2::uuid IS NULL OR request_id IS DISTINCT FROM $2)
            ORDER BY id DESC LIMIT 1
        )
        SELECT change.* FROM record_changes AS change, newest
        WHERE undone_at IS NULL AND NOT is_undo
          AND change.request_id IS NOT DISTINCT FROM newest.request_id
          AND (newest.request_id IS NOT NULL OR change.changed_at = newest.changed_at)
        ORDER BY change.id DESC FOR UPDATE OF change
        """,
        request_id,
        besides,
    )
    return [RecordChange.from_row(row) for row in rows]


async def _revert(connection: Connection, change: RecordChange, labels: Mapping[str, str]) -> None:
    """Revert one change if the row is still as the change left it."""
    table, columns = _quoted(change.table), await _columns(connection, change.table)
    named = ", ".join(_quoted(name) for name in columns)
    # Columns that a later migration added are in no older change.
    unchanged = "to_jsonb(record) @> ($2::jsonb - 'updated_at')"
    if change.table == SCHEDULES:  # a reminder that was sent cannot be taken back
        ignored = ", ".join(f"'{name}'" for name in _RUN_COLUMNS)
        unchanged = f"to_jsonb(record) @> ($2::jsonb - ARRAY[{ignored}])"
        unchanged += " AND (record.run_at IS NULL OR record.next_run_at IS NOT NULL)"
    match change.operation:
        case "insert":
            sql = f"DELETE FROM {table} AS record WHERE id = $1 AND {unchanged} RETURNING id"
            values: Sequence[Any] = (change.record_id, change.after)
        case "update":
            sql = f"""
                UPDATE {table} AS record
                SET ({named}) = (SELECT {named} FROM jsonb_populate_record(record, $3::jsonb))
                WHERE id = $1 AND {unchanged} RETURNING id
                """
            values = (change.record_id, change.after, change.before)
        case _:
            sql = f"""
                INSERT INTO {table} ({named})
                SELECT {named} FROM jsonb_populate_record(NULL::{table}, $2::jsonb)
                WHERE $1::uuid IS NOT NULL RETURNING id
                """
            values = (change.record_id, change.before)
    try:
        async with connection.transaction():
            reverted = await connection.fetchval(sql, *values)
    except asyncpg.IntegrityConstraintViolationError as error:
        raise _conflict(change, labels, "something else depends on it") from error
    if reverted is None:
        sent = "it was sent or changed since" if change.table == SCHEDULES else None
        raise _conflict(change, labels, sent or "it was changed since")


async def _remove(
    connection: Connection, table: str, changes: list[RecordChange], labels: Mapping[str, str]
) -> None:
    """Remove inserted rows that are still as they were inserted, all in one statement."""
    removed = await connection.fetch(
        f"""
        DELETE FROM {_quoted(table)} AS record USING record_changes AS change
        WHERE change.id = ANY($1) AND record.id = change.record_id
          AND to_jsonb(record) @> (change.after - 'updated_at')
        RETURNING record.id
        """,
        [change.id for change in changes],
    )
    gone = {row["id"] for row in removed}
    for change in changes:
        if change.record_id not in gone:
            raise _conflict(change, labels, "it was changed since")


async def _check_references(
    connection: Connection, newest: RecordChange, labels: Mapping[str, str]
) -> None:
    try:
        async with connection.transaction():
            await connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
    except asyncpg.ForeignKeyViolationError as error:
        raise _conflict(newest, labels, "something else depends on it") from error


def _conflict(change: RecordChange, labels: Mapping[str, str], why: str) -> StateConflict:
    return StateConflict(
        f"{change.label(labels)} cannot be undone: {why}",
        hint="undo or correct the later change first",
    )


async def _columns(connection: Connection, table: str) -> list[str]:
    """Return the names of the columns that can be written."""
    rows = await connection.fetch(
        """
        SELECT attname AS name FROM pg_attribute
        WHERE attrelid = $1::text::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = ''
        ORDER BY attnum
        """,
        _quoted(table),
    )
    return [row["name"] for row in rows]


async def _labels(connection: Connection) -> dict[str, str]:
    rows = await connection.fetch("SELECT name, label FROM record_tables ORDER BY name")
    return {row["name"]: row["label"] for row in rows}


def _undone(change: RecordChange, labels: Mapping[str, str]) -> dict[str, Any]:
    return {
        "table": change.table,
        "id": str(change.record_id),
        "what": change.label(labels),
        "result": _VERBS[change.operation],
    }


def _shown_change(row: asyncpg.Record, ctx: CallContext) -> dict[str, Any]:
    return {
        "at": row["changed_at"].isoformat(),
        "when": f"{row['changed_at'].astimezone(ctx.zone):%-d %B %Y, %H:%M}",
        "table": row["table_name"],
        "operation": row["operation"],
        "before": _values(row["before"]),
        "after": _values(row["after"]),
        "request_id": str(row["request_id"]) if row["request_id"] else None,
        "session_id": str(row["session_id"]) if row["session_id"] else None,
        "sender": row["sender"],
        "is_undo": row["is_undo"],
        "undone": row["undone_at"] is not None,
    }


def _values(state: dict[str, Any] | None) -> dict[str, Any] | None:
    return state and {key: value for key, value in state.items() if key not in PROVENANCE}


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


TOOLS = (
    undo,
    undoable,
    record_history,
    record_tables,
    record_list,
    record_export,
    record_update,
    record_delete,
)
