"""SQL of synchronization: files as last seen, local changes to write, cursors and the log of writes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from butlers.db.database import Connection
from butlers.modules.calendar import store
from butlers.modules.calendar.ical import Components, in_order
from butlers.modules.calendar.store import CalendarSource
from butlers.modules.calendar.sync.merge import same


@dataclass(frozen=True, slots=True)
class CalendarObject:
    """A file on the server as we last saw it, and the one that we have begun to write."""

    href: str
    etag: str | None = None
    data: str | None = None
    writing: str | None = None


async def begin_sync(connection: Connection) -> None:
    """Mark the writes of this transaction as the server's: not to be written back, nor undone.

    The history keeps them like what an undo restores, so that "undo" never takes a synchronization back.
    """
    await connection.execute(
        "SELECT set_config('butlers.calendar_sync', 'on', true), set_config('butlers.undo', 'on', true)"
    )


async def replace_components(
    connection: Connection, source: CalendarSource, uid: str, wanted: Components
) -> None:
    """Make the stored event equal to the wanted one; rows keep their ids. Needs ``begin_sync``."""
    stored = await store.events_of_uid(connection, source.id, uid)
    known = {event.recurs_at: event for event in stored}
    gone = [event.id for key, event in known.items() if key not in wanted]
    await store.delete_events(connection, gone)
    series, written = None, []
    for key, event in in_order(wanted):
        old = known.get(key)
        row = replace(
            event,
            id=old.id if old else event.id,
            source_id=source.id,
            uid=uid,
            series_id=series if key is not None else None,
        )
        series = row.id if key is None else series
        if old is None or not same(old, row):
            await store.save_event(connection, row)
            written.append(row.id)
    await connection.execute(
        "UPDATE calendar_events SET trust = 'outside', sender = $2 WHERE id = ANY($1)",
        written,
        f"calendar {source.name}",
    )


async def stored_components(connection: Connection, source_id: UUID, uid: str) -> Components:
    return {one.recurs_at: one for one in await store.events_of_uid(connection, source_id, uid)}


async def stored_uids(connection: Connection, source_id: UUID) -> set[str]:
    rows = await connection.fetch(
        "SELECT DISTINCT uid FROM calendar_events WHERE source_id = $1", source_id
    )
    return {row["uid"] for row in rows}


# -- files --------------------------------------------------------------------------------------------


async def find_object(connection: Connection, source_id: UUID, uid: str) -> CalendarObject | None:
    row = await connection.fetchrow(
        "SELECT href, etag, data, writing FROM calendar_objects WHERE source_id = $1 AND uid = $2"
        " FOR UPDATE",
        source_id,
        uid,
    )
    return CalendarObject(**row) if row else None


async def save_object(
    connection: Connection, source_id: UUID, uid: str, found: CalendarObject
) -> None:
    await connection.execute(
        """
        INSERT INTO calendar_objects (source_id, uid, href, etag, data, writing)
        VALUES ($1, $2, $3, $4, $5, $6)
        ON CONFLICT (source_id, uid) DO UPDATE
        SET href = EXCLUDED.href, etag = EXCLUDED.etag, data = EXCLUDED.data,
            writing = EXCLUDED.writing
        """,
        source_id,
        uid,
        found.href,
        found.etag,
        found.data,
        found.writing,
    )


async def delete_object(connection: Connection, source_id: UUID, uid: str) -> None:
    await connection.execute(
        "DELETE FROM calendar_objects WHERE source_id = $1 AND uid = $2", source_id, uid
    )


async def list_objects(
    connection: Connection, source_id: UUID
) -> dict[str, tuple[str, str | None]]:
    """Return uid and ETag of the known files, by their paths."""
    rows = await connection.fetch(
        "SELECT href, uid, etag FROM calendar_objects WHERE source_id = $1", source_id
    )
    return {row["href"]: (row["uid"], row["etag"]) for row in rows}


# -- local changes ------------------------------------------------------------------------------------


async def pending_pushes(connection: Connection, source_id: UUID) -> dict[str, int]:
    """Return the events that changed here, with the versions of the changes, in order."""
    rows = await connection.fetch(
        "SELECT uid, version FROM calendar_pushes WHERE source_id = $1 ORDER BY version", source_id
    )
    return {row["uid"]: row["version"] for row in rows}


async def is_pending(connection: Connection, source_id: UUID, uid: str) -> bool:
    return bool(
        await connection.fetchval(
            "SELECT EXISTS (SELECT FROM calendar_pushes WHERE source_id = $1 AND uid = $2)",
            source_id,
            uid,
        )
    )


async def finish_push(
    connection: Connection, source_id: UUID, uid: str, version: int | None = None
) -> None:
    """Forget a change that was written, unless it has changed again since."""
    await connection.execute(
        "DELETE FROM calendar_pushes WHERE source_id = $1 AND uid = $2"
        " AND ($3::bigint IS NULL OR version = $3)",
        source_id,
        uid,
        version,
    )


async def log_action(
    connection: Connection, source_id: UUID, uid: str, action: str, detail: str | None = None
) -> None:
    await connection.execute(
        "INSERT INTO calendar_action_log (source_id, uid, action, detail) VALUES ($1, $2, $3, $4)",
        source_id,
        uid,
        action,
        detail,
    )


# -- sources and cursors ------------------------------------------------------------------------------


async def declare_source(connection: Connection, name: str, kind: str, *, shared: bool) -> None:
    """Add or change the calendar of a configured account."""
    await connection.execute(
        """
        INSERT INTO calendar_sources (name, kind, writable, shared) VALUES ($1, $2, $3, $4)
        ON CONFLICT (name) DO UPDATE
        SET kind = EXCLUDED.kind, writable = EXCLUDED.writable, shared = EXCLUDED.shared
        """,
        name,
        kind,
        kind != "ics",
        shared,
    )


async def remove_other_sources(connection: Connection, names: list[str]) -> None:
    """Remove the calendars whose accounts are no longer configured, with their copies of events."""
    await connection.execute(
        "DELETE FROM calendar_sources WHERE kind <> 'local' AND NOT name = ANY($1)", names
    )


async def read_cursor(connection: Connection, source_id: UUID) -> str | None:
    token: str | None = await connection.fetchval(
        "SELECT token FROM calendar_sync_cursors WHERE source_id = $1", source_id
    )
    return token


async def save_cursor(
    connection: Connection,
    source_id: UUID,
    now: datetime,
    *,
    token: str | None,
    full: bool,
    error: str | None,
) -> None:
    await connection.execute(
        """
        INSERT INTO calendar_sync_cursors (source_id, token, synced_at, full_at, error)
        VALUES ($1, $2, $3::timestamptz, CASE WHEN $4 THEN $3::timestamptz END, $5)
        ON CONFLICT (source_id) DO UPDATE
        SET token = EXCLUDED.token, synced_at = EXCLUDED.synced_at, error = EXCLUDED.error,
            full_at = coalesce(EXCLUDED.full_at, calendar_sync_cursors.full_at)
        """,
        source_id,
        token,
        now,
        full,
        error,
    )


async def save_failure(connection: Connection, source_id: UUID, error: str) -> datetime | None:
    """Store why a synchronization failed; return when the last one succeeded."""
    synced_at: datetime | None = await connection.fetchval(
        """
        INSERT INTO calendar_sync_cursors (source_id, error) VALUES ($1, $2)
        ON CONFLICT (source_id) DO UPDATE SET error = EXCLUDED.error
        RETURNING synced_at
        """,
        source_id,
        error,
    )
    return synced_at


async def sync_states(connection: Connection) -> list[dict[str, Any]]:
    rows = await connection.fetch(
        """
        SELECT source.name, source.kind, source.writable, source.shared, cursor.synced_at,
               cursor.full_at, cursor.error,
               (SELECT count(*) FROM calendar_events WHERE source_id = source.id) AS events,
               (SELECT count(*) FROM calendar_pushes WHERE source_id = source.id) AS to_write
        FROM calendar_sources AS source
        LEFT JOIN calendar_sync_cursors AS cursor ON cursor.source_id = source.id
        ORDER BY source.name
        """
    )
    return [dict(row) for row in rows]
