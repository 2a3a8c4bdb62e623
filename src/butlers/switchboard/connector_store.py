"""The Switchboard's registry of connectors: when each was heard of, what it counted, how far it has come."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any
from uuid import UUID

from butlers.db.database import Connection
from butlers.domain.connector import Checkpoint, Heartbeat


async def keep_heartbeat(connection: Connection, heartbeat: Heartbeat) -> int:
    """The first one registers. A new instance counts from nothing again. How many messages failed there since
    its last one."""
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


async def move_checkpoint(
    connection: Connection, kind: str, endpoint: str, instance_id: UUID, cursor: dict[str, Any]
) -> bool:
    """Keep how far it has come. False for an instance that another has followed: it is late."""
    moved = await connection.fetchval(
        "UPDATE connectors SET cursor = $4, cursor_at = now()"
        " WHERE kind = $1 AND endpoint = $2 AND instance_id = $3 RETURNING true",
        kind,
        endpoint,
        instance_id,
        cursor,
    )
    return bool(moved)


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
