"""Queries over the items of all queues, for tools and for retention."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from butlers.db.database import Connection

# Table -> SQL condition of the rows that retention may delete, in the form of Role.retention().
RETENTION: Mapping[str, str] = {
    "queue_items": """
        state = 'done' AND finished_at < $1 AND split_part(key, ':', 1) <> ALL($2)
        AND coalesce(payload ->> 'request_id', '') <> ALL($2)""",
    "call_journal": "called_at < $1 AND request_id::text <> ALL($2)",
}


async def open_ids(connection: Connection) -> list[str]:
    """Return the ids of the requests and deliveries that items not done yet (or dead) refer to."""
    found: list[str] = await connection.fetchval(
        """
        SELECT coalesce(array_agg(DISTINCT named), '{}') FROM queue_items, LATERAL unnest(ARRAY[
            split_part(key, ':', 1), payload ->> 'request_id', payload #>> '{request,request_id}',
            payload ->> 'delivery_id'
        ]) AS named
        WHERE state <> 'done' AND named IS NOT NULL
        """
    )
    return found


async def files_of_open_items(connection: Connection) -> set[str]:
    """Return the storage references of the attachments of items not done yet (or dead)."""
    rows = await connection.fetch(
        """
        SELECT DISTINCT file ->> 'storage_ref' AS reference
        FROM queue_items, LATERAL jsonb_array_elements(payload -> 'attachments') AS file
        WHERE state <> 'done' AND jsonb_typeof(payload -> 'attachments') = 'array'
        """
    )
    return {row["reference"] for row in rows if row["reference"]}


async def find_payload(connection: Connection, queue: str, key: str) -> Any:
    return await connection.fetchval(
        "SELECT payload FROM queue_items WHERE queue = $1 AND key = $2", queue, key
    )


async def list_waiting(
    connection: Connection, queue: str, state: str | None, limit: int, offset: int
) -> list[dict[str, Any]]:
    """Return the messages of a queue that are not done, oldest first."""
    rows = await connection.fetch(
        """
        SELECT key AS request_id, payload->>'text' AS text,
               payload->'request'->>'source_channel' AS channel,
               payload->'request'->>'source_sender_identity' AS sender,
               payload->'request'->>'received_at' AS received_at,
               state, attempts, error
        FROM queue_items
        WHERE queue = $1 AND state <> 'done' AND ($2::text IS NULL OR state = $2)
        ORDER BY id LIMIT $3 OFFSET $4
        """,
        queue,
        state,
        limit,
        offset,
    )
    return [dict(row) for row in rows]


async def count_waiting(connection: Connection, queue: str) -> dict[str, Any]:
    """Return the number of messages by state, and the time of the oldest."""
    rows = await connection.fetch(
        """
        SELECT state, count(*) AS number, min(payload->'request'->>'received_at') AS oldest
        FROM queue_items WHERE queue = $1 AND state <> 'done' GROUP BY state ORDER BY state
        """,
        queue,
    )
    return {
        "waiting": {row["state"]: row["number"] for row in rows},
        "oldest_waiting": min((row["oldest"] for row in rows if row["oldest"]), default=None),
    }


async def items_by_key(connection: Connection, keys: Sequence[str]) -> list[dict[str, Any]]:
    """Return the incoming items of a request, or of its parts."""
    rows = await connection.fetch(
        """
        SELECT created_at AS at, queue, state, attempts, error, run_after, finished_at,
               result ->> 'command' AS command
        FROM queue_items WHERE queue IN ('inbox', 'commands', 'routes') AND key = ANY($1)
        """,
        keys,
    )
    return [dict(row) for row in rows]


async def open_keys(connection: Connection, queue: str, keys: Sequence[str]) -> list[str]:
    """Return the keys whose items are handled now or soon; not those that wait for a later time."""
    rows = await connection.fetch(
        "SELECT key FROM queue_items WHERE queue = $1 AND key = ANY($2)"
        " AND (state = 'leased' OR state = 'ready' AND run_after <= now() + interval '30 s')",
        queue,
        keys,
    )
    return [row["key"] for row in rows]


async def outgoing_items(connection: Connection, request_id: UUID) -> list[dict[str, Any]]:
    """Return the notifications and deliveries that a request caused."""
    rows = await connection.fetch(
        """
        SELECT created_at AS at, queue, state, attempts, error, run_after, finished_at FROM queue_items
        WHERE queue IN ('notify', 'deliveries') AND payload ->> 'request_id' = $1
        """,
        str(request_id),
    )
    return [dict(row) for row in rows]
