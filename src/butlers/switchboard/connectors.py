"""Connectors: their heartbeats and checkpoints, what the Switchboard counted itself, and their health.

A connector's health comes from its heartbeat and from the counts, which do not depend on what the
connector reports.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any
from uuid import UUID

from butlers.db.database import Connection
from butlers.domain.caller import OWNER_ONLY
from butlers.domain.clock import Clock
from butlers.domain.errors import StateConflict
from butlers.domain.message import check_storable
from butlers.domain.registration import Checkpoint, ConnectorState, Heartbeat
from butlers.tools.context import CallContext
from butlers.tools.declaration import Effect, tool

HEARTBEAT_S = 20.0
SILENT_S = 50.0  # two and a half heartbeats, so that a dead connector is reported within a minute
LOOP_REPEATS = 20  # duplicates in a minute that may mean a loop
WINDOW_S = 60.0
MAX_SOURCES = 1_000
MAX_EVENTS = 10_000
UNKNOWN = "unknown"


class IngestOutcome(StrEnum):
    NEW = "new"
    NOTED = "noted"  # recorded without its content
    DUPLICATE = "duplicate"
    REFUSED = "refused"
    FAILED = "failed"  # by the connector's own count


@dataclass(frozen=True, slots=True)
class IngestCounts:
    """Counts of the last minute."""

    new: int = 0
    duplicate: int = 0
    refused: int = 0
    noted: int = 0
    failed: int = 0
    last_refusal: str | None = None


@dataclass(slots=True)
class _Source:
    events: deque[tuple[float, IngestOutcome]] = field(
        default_factory=lambda: deque(maxlen=MAX_EVENTS)
    )
    last_refusal: str | None = None


class IngestStats:
    """Outcomes of the messages of each endpoint in the last minute."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # By endpoint alone: a connector's kind and the channel that it serves may differ.
        self._sources: dict[str, _Source] = {}

    def count(
        self, endpoint: str, outcome: IngestOutcome, reason: str | None = None, times: int = 1
    ) -> None:
        if endpoint not in self._sources and len(self._sources) >= MAX_SOURCES:
            return  # a caller invents names; known endpoints are still counted
        source = self._sources.setdefault(endpoint, _Source())
        now = self._clock.monotonic()
        source.events.extend((now, outcome) for _ in range(min(times, MAX_EVENTS)))
        source.last_refusal = reason or source.last_refusal

    def counts(self, endpoint: str) -> IngestCounts:
        source = self._sources.get(endpoint)
        if source is None:
            return IngestCounts()
        since = self._clock.monotonic() - WINDOW_S
        while source.events and source.events[0][0] < since:
            source.events.popleft()
        counted = Counter(str(outcome) for _, outcome in source.events)
        return IngestCounts(**counted, last_refusal=source.last_refusal)

    def endpoints(self) -> list[str]:
        """Return the names of all counted endpoints, sorted."""
        return sorted(self._sources)


def connector_health(
    state: str, error: str | None, silent_s: float, counts: IngestCounts
) -> tuple[str, str]:
    """Return the health and its reason: down, rejected, looping, the reported state, or healthy."""
    if silent_s > SILENT_S:
        return "down", f"no heartbeat for {silent_s:.0f} s"
    # A connector notes each refused message; such a note is not a message that was accepted.
    if (lost := max(counts.refused, counts.failed)) and not counts.new:
        reason = f": {counts.last_refusal}" if counts.last_refusal else ""
        return "rejected", f"all {lost} messages of the last minute were refused{reason}"
    accepted = counts.new + counts.noted
    if counts.duplicate >= LOOP_REPEATS and counts.duplicate > 10 * accepted:
        repeats = f"{counts.duplicate} repeats and {accepted} new messages in the last minute"
        return "looping", repeats
    if state != ConnectorState.HEALTHY:
        return state, error or "reported by the connector"
    return "healthy", ""


@tool(callers=OWNER_ONLY)
async def connector_heartbeat(ctx: CallContext, heartbeat: Heartbeat) -> dict[str, Any]:
    """Report that a connector is alive, and its counters. The first heartbeat registers it."""
    await record_heartbeat(ctx.connection, ctx.service(IngestStats), heartbeat)
    return {"status": "noted", "again_in_s": HEARTBEAT_S}


@tool(callers=OWNER_ONLY, effect=Effect.READ)
async def connector_checkpoint(ctx: CallContext, kind: str, endpoint: str) -> dict[str, Any]:
    """The cursor that a connector saved last, and when; null before the first."""
    found = await read_checkpoint(ctx.connection, kind, endpoint)
    return {
        "cursor": found.cursor if found else None,
        "saved_at": found.saved_at if found else None,
    }


@tool(callers=OWNER_ONLY)
async def connector_advance(
    ctx: CallContext, kind: str, endpoint: str, instance_id: UUID, cursor: dict[str, Any]
) -> dict[str, Any]:
    """Move a connector's checkpoint. Everything before it must have been accepted."""
    await advance_checkpoint(ctx.connection, kind, endpoint, instance_id, cursor)
    return {"status": "moved"}


@tool(callers=OWNER_ONLY, effect=Effect.READ)
async def connectors_list(ctx: CallContext) -> dict[str, Any]:
    """Every connector with its health and the reason: by its heartbeat and by the messages counted here."""
    stats = ctx.service(IngestStats)
    rows = await list_connectors(ctx.connection)
    known = {row["endpoint"] for row in rows}
    listed = [_with_health(row, stats.counts(row["endpoint"])) for row in rows]
    for endpoint in stats.endpoints():
        if endpoint not in known:
            listed += _unregistered(endpoint, stats.counts(endpoint))
    return {"connectors": listed}


def _with_health(row: dict[str, Any], counts: IngestCounts) -> dict[str, Any]:
    health, why = connector_health(row["state"], row["error"], row["silent_s"], counts)
    return {**row, "health": health, "why": why, "last_minute": _last_minute(counts)}


def _unregistered(endpoint: str, counts: IngestCounts) -> list[dict[str, Any]]:
    """Return an entry for an endpoint without a heartbeat, if its messages are being refused."""
    health, why = connector_health(ConnectorState.HEALTHY, None, 0.0, counts)
    if health == "healthy":
        return []
    empty = dict.fromkeys(("instance_id", "heartbeat_at", "counters", "cursor"))
    shown = {"health": health, "why": why, "last_minute": _last_minute(counts)}
    return [{"kind": UNKNOWN, "endpoint": endpoint, **empty, **shown}]


def _last_minute(counts: IngestCounts) -> dict[str, int]:
    return {str(outcome): getattr(counts, outcome) for outcome in IngestOutcome}


async def record_heartbeat(
    connection: Connection, stats: IngestStats, heartbeat: Heartbeat
) -> None:
    texts = [
        heartbeat.kind,
        heartbeat.endpoint_identity,
        heartbeat.error or "",
        heartbeat.version or "",
    ]
    check_storable("the heartbeat", texts)
    failed = await _save_heartbeat(connection, heartbeat)
    if failed:
        reason = heartbeat.error or "by its own count"
        stats.count(heartbeat.endpoint_identity, IngestOutcome.FAILED, reason, failed)


async def advance_checkpoint(
    connection: Connection, kind: str, endpoint: str, instance_id: UUID, cursor: dict[str, Any]
) -> None:
    """Save the cursor. Raises StateConflict if another instance has taken over."""
    moved = await connection.fetchval(
        "UPDATE connectors SET cursor = $4, cursor_at = now()"
        " WHERE kind = $1 AND endpoint = $2 AND instance_id = $3 RETURNING true",
        kind,
        endpoint,
        instance_id,
        cursor,
    )
    if not moved:
        raise StateConflict(
            f"another instance of the {kind} connector for {endpoint} is running",
            hint="stop one of the two; a connector begins with a heartbeat",
        )


async def _save_heartbeat(connection: Connection, heartbeat: Heartbeat) -> int:
    """Store a heartbeat, and return the messages that failed since the last one of this instance."""
    before = await connection.fetchval(
        """
        WITH before AS (
            SELECT counters FROM connectors WHERE kind = $1 AND endpoint = $2 AND instance_id = $3
        )
        INSERT INTO connectors (kind, endpoint, instance_id, version, state, error, uptime_s, counters)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
        ON CONFLICT (kind, endpoint) DO UPDATE
        SET instance_id = excluded.instance_id, version = excluded.version, state = excluded.state,
            error = excluded.error, uptime_s = excluded.uptime_s, counters = excluded.counters,
            heartbeat_at = now()
        RETURNING (SELECT (counters ->> 'messages_failed')::bigint FROM before)
        """,
        heartbeat.kind,
        heartbeat.endpoint_identity,
        heartbeat.instance_id,
        heartbeat.version,
        heartbeat.state,
        heartbeat.error,
        heartbeat.uptime_s,
        asdict(heartbeat.counters),
    )
    return max(0, heartbeat.counters.messages_failed - (before or 0))


async def read_checkpoint(connection: Connection, kind: str, endpoint: str) -> Checkpoint | None:
    row = await connection.fetchrow(
        "SELECT cursor, cursor_at FROM connectors"
        " WHERE kind = $1 AND endpoint = $2 AND cursor IS NOT NULL",
        kind,
        endpoint,
    )
    return Checkpoint(row["cursor"], row["cursor_at"]) if row else None


async def list_connectors(connection: Connection) -> list[dict[str, Any]]:
    rows = await connection.fetch(
        """
        SELECT kind, endpoint, instance_id, version, state, error, uptime_s, counters, cursor, cursor_at,
               first_seen_at, heartbeat_at,
               extract(epoch FROM now() - heartbeat_at)::float AS silent_s
        FROM connectors ORDER BY kind, endpoint
        """
    )
    return [dict(row) for row in rows]


TOOLS = (connector_heartbeat, connector_checkpoint, connector_advance, connectors_list)
