"""SQL of calendars and events."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from butlers.db.database import Connection
from butlers.domain.errors import InvalidArguments, NotFound
from butlers.modules.calendar.model import EDGE, CalendarEvent, Occurrence, Window

LOCAL = "local"
COVERS_PAST, COVERS_AHEAD = timedelta(days=31), timedelta(days=400)
_STAMPED = ("sender", "trust")
_WRITTEN = tuple(field.name for field in fields(CalendarEvent) if field.name not in _STAMPED)
_COLUMNS = (*_WRITTEN, "starts_at", "ends_at", "last_at")
_FOREVER = datetime(9999, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class CalendarSource:
    id: UUID
    name: str
    kind: str
    writable: bool
    shared: bool


async def list_sources(connection: Connection) -> list[CalendarSource]:
    rows = await connection.fetch(
        "SELECT id, name, kind, writable, shared FROM calendar_sources ORDER BY name"
    )
    return [CalendarSource(**row) for row in rows]


async def find_source(connection: Connection, name: str) -> CalendarSource:
    """Return the calendar of this name or id. Raises InvalidArguments if there is none."""
    sources = await list_sources(connection)
    for source in sources:
        if name in (source.name, str(source.id)):
            return source
    known = ", ".join(source.name for source in sources)
    raise InvalidArguments(f"there is no calendar {name!r}", hint=f"calendars: {known}")


async def source_of(connection: Connection, event: CalendarEvent) -> CalendarSource:
    return await find_source(connection, str(event.source_id))


# -- events -------------------------------------------------------------------------------------------


async def find_event(
    connection: Connection, event_id: UUID, *, lock: bool = False
) -> CalendarEvent:
    row = await connection.fetchrow(
        f"SELECT * FROM calendar_events WHERE id = $1 {'FOR UPDATE' if lock else ''}", event_id
    )
    if row is None:
        raise NotFound(f"there is no event {event_id}", hint="calendar_list_events shows the ids")
    return CalendarEvent.from_row(row)


async def save_event(connection: Connection, event: CalendarEvent) -> None:
    """Store an event, new or changed, and project its series."""
    placeholders = ", ".join(f"${number}" for number in range(1, len(_COLUMNS) + 1))
    changes = ", ".join(f"{name} = EXCLUDED.{name}" for name in _COLUMNS if name != "id")
    await connection.execute(
        f"INSERT INTO calendar_events ({', '.join(_COLUMNS)}) VALUES ({placeholders})"
        f" ON CONFLICT (id) DO UPDATE SET {changes}",
        *_values(event),
    )


async def save_events(connection: Connection, events: Sequence[CalendarEvent]) -> None:
    """Store new events, series before the occurrences that replace theirs."""
    placeholders = ", ".join(f"${number}" for number in range(1, len(_COLUMNS) + 1))
    ordered = sorted(events, key=lambda event: event.series_id is not None)
    await connection.executemany(
        f"INSERT INTO calendar_events ({', '.join(_COLUMNS)}) VALUES ({placeholders})",
        [_values(event) for event in ordered],
    )


async def delete_events(connection: Connection, ids: Iterable[UUID]) -> None:
    await connection.execute("DELETE FROM calendar_events WHERE id = ANY($1)", list(ids))


async def overrides_of(connection: Connection, series: UUID) -> list[CalendarEvent]:
    rows = await connection.fetch(
        "SELECT * FROM calendar_events WHERE series_id = $1 ORDER BY recurs_at", series
    )
    return [CalendarEvent.from_row(row) for row in rows]


async def find_override(
    connection: Connection, series: UUID, recurs_at: datetime
) -> CalendarEvent | None:
    row = await connection.fetchrow(
        "SELECT * FROM calendar_events WHERE series_id = $1 AND recurs_at = $2",
        series,
        recurs_at,
    )
    return CalendarEvent.from_row(row) if row else None


async def events_of_uid(connection: Connection, source_id: UUID, uid: str) -> list[CalendarEvent]:
    """Return an event or series and its changed occurrences, the series first."""
    rows = await connection.fetch(
        "SELECT * FROM calendar_events WHERE source_id = $1 AND uid = $2"
        " ORDER BY recurs_at NULLS FIRST FOR UPDATE",
        source_id,
        uid,
    )
    return [CalendarEvent.from_row(row) for row in rows]


async def last_changed(connection: Connection) -> CalendarEvent | None:
    """Return the event that the owner's last change was about, if it was about an event."""
    row = await connection.fetchrow(
        """
        SELECT table_name, record_id FROM record_changes
        WHERE NOT is_undo AND undone_at IS NULL AND trust = 'owner' ORDER BY id DESC LIMIT 1
        """
    )
    if row is None or row["table_name"] != "calendar_events":
        return None
    found = await connection.fetchrow(
        "SELECT * FROM calendar_events WHERE id = $1", row["record_id"]
    )
    return CalendarEvent.from_row(found) if found else None


# -- occurrences --------------------------------------------------------------------------------------


async def occurrences_in(
    connection: Connection, window: Window, *, source_id: UUID | None = None
) -> list[Occurrence]:
    """Return what takes place in a window, in order. Canceled events are left out."""
    found = [
        *await _singles(connection, window),
        *await _stored(connection, window),
        *await _unprojected(connection, window),
    ]
    wanted = [
        one
        for one in found
        if window.contains(one)
        and one.event.status != "cancelled"
        and source_id in (None, one.event.source_id)
    ]
    return sorted(wanted, key=lambda one: (one.instants(window.zone), one.event.title, one.id))


async def _singles(connection: Connection, window: Window) -> list[Occurrence]:
    rows = await connection.fetch(
        """
        SELECT * FROM calendar_events
        WHERE NOT recurring AND tstzrange(starts_at, ends_at, '[]') && tstzrange($1, $2)
        """,
        *window.outer,
    )
    return [CalendarEvent.from_row(row).single() for row in rows]


async def _stored(connection: Connection, window: Window) -> list[Occurrence]:
    rows = await connection.fetch(
        """
        SELECT event.*, instance.start_local AS occurs_at
        FROM calendar_event_instances AS instance
        JOIN calendar_projections AS projection USING (event_id)
        JOIN calendar_events AS event ON event.id = instance.event_id
        WHERE tstzrange(instance.starts_at, instance.ends_at, '[]') && tstzrange($1, $2)
          AND projection.covers_from <= $1 AND projection.covers_until >= $2
        """,
        *window.outer,
    )
    return [CalendarEvent.from_row(row).occurrence(row["occurs_at"]) for row in rows]


async def _unprojected(connection: Connection, window: Window) -> list[Occurrence]:
    """Expand the series whose stored occurrences do not cover the window."""
    rows = await connection.fetch(
        """
        SELECT event.* FROM calendar_projections AS projection
        JOIN calendar_events AS event ON event.id = projection.event_id
        WHERE (projection.covers_from > $1 OR projection.covers_until < $2)
          AND event.starts_at < $2 AND (event.last_at IS NULL OR event.last_at > $1)
        """,
        *window.outer,
    )
    series = [CalendarEvent.from_row(row) for row in rows]
    replaced = await _replaced(connection, [event.id for event in series])
    return [
        event.occurrence(start)
        for event in series
        for start in _starts(event, *window.outer, replaced)
    ]


async def _replaced(connection: Connection, series: Sequence[UUID]) -> dict[UUID, set[datetime]]:
    rows = await connection.fetch(
        "SELECT series_id, recurs_at FROM calendar_events WHERE series_id = ANY($1)", list(series)
    )
    found: dict[UUID, set[datetime]] = {}
    for row in rows:
        found.setdefault(row["series_id"], set()).add(row["recurs_at"])
    return found


def _starts(
    event: CalendarEvent,
    start: datetime,
    end: datetime,
    replaced: dict[UUID, set[datetime]],
) -> list[datetime]:
    first = start.replace(tzinfo=None) - event.duration - EDGE
    last = end.replace(tzinfo=None) + EDGE
    gone = replaced.get(event.id, set())
    return [one for one in event.starts_between(first, last) if one not in gone]


async def project_series(connection: Connection, now: datetime, limit: int = 500) -> int:
    """Store the coming occurrences of series that lack them. Return how many series were projected."""
    start, end = now - COVERS_PAST, now + COVERS_AHEAD
    rows = await connection.fetch(
        """
        SELECT event.* FROM calendar_projections AS projection
        JOIN calendar_events AS event ON event.id = projection.event_id
        WHERE projection.covers_until < $1 ORDER BY event.id LIMIT $2
        FOR UPDATE OF projection SKIP LOCKED
        """,
        now + COVERS_AHEAD / 2,
        limit,
    )
    series = [CalendarEvent.from_row(row) for row in rows]
    replaced = await _replaced(connection, [event.id for event in series])
    for event in series:
        await _project(connection, event, start, end, replaced)
    return len(series)


async def _project(
    connection: Connection,
    event: CalendarEvent,
    start: datetime,
    end: datetime,
    replaced: dict[UUID, set[datetime]],
) -> None:
    found = [event.occurrence(one) for one in _starts(event, start, end, replaced)]
    last = event.last_at()
    await connection.execute("DELETE FROM calendar_event_instances WHERE event_id = $1", event.id)
    await connection.execute(
        """
        INSERT INTO calendar_event_instances (event_id, start_local, starts_at, ends_at)
        SELECT $1, * FROM unnest($2::timestamp[], $3::timestamptz[], $4::timestamptz[])
        """,
        event.id,
        [one.start for one in found],
        [one.starts_at for one in found],
        [one.ends_at for one in found],
    )
    await connection.execute(
        "UPDATE calendar_projections SET covers_from = $2, covers_until = $3 WHERE event_id = $1",
        event.id,
        start,
        _FOREVER if last is not None and last < end else end,
    )


def _values(event: CalendarEvent) -> list[Any]:
    written = [getattr(event, name) for name in _WRITTEN]
    values = [list(value) if isinstance(value, tuple) else value for value in written]
    return [*values, event.starts_at, event.ends_at, event.last_at()]


async def search_events(
    connection: Connection, words: str, now: datetime, limit: int = 20
) -> list[CalendarEvent]:
    """Return events and series with these words in the title that are not over, soonest first."""
    rows = await connection.fetch(
        """
        SELECT * FROM calendar_events
        WHERE to_tsvector('simple', title) @@ plainto_tsquery('simple', $1)
          AND status <> 'cancelled' AND (last_at IS NULL OR last_at > $2)
        ORDER BY starts_at, id LIMIT $3
        """,
        words,
        now - EDGE,
        limit,
    )
    return [CalendarEvent.from_row(row) for row in rows]
