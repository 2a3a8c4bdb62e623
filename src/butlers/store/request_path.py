"""What one butler's tables know of a request: each hop with its time, as far as it went here."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from butlers.store.database import Connection

Hop = dict[str, Any]

QUEUES = """
SELECT created_at AS at, queue, state, attempts, error, run_after, finished_at FROM queue_items
WHERE queue IN ('inbox', 'routes') AND key = $1
"""
SESSIONS = """
SELECT started_at AS at, id, runtime, model, outcome, error, duration_ms, input_tokens, output_tokens,
       cost_usd
FROM sessions WHERE request_id = $1
"""
CALLS = """
SELECT called_at AS at, tool, ok, replayed, error, duration_ms FROM tool_calls
WHERE request_id = $1 AND session_id IS NOT NULL
"""
INBOX = """
SELECT received_at AS at, channel, sender, thread, policy_tier, route_target, route_rule, route_reason,
       routed_at
FROM message_inbox WHERE request_id = $1
"""
DELIVERIES = """
SELECT accepted_at AS at, delivery_id, origin, intent, channel, target, provider_message_id, delivered_at
FROM deliveries WHERE request_id = $1
"""


async def read_path(connection: Connection, request_id: UUID, *, role: str) -> list[Hop]:
    hops = [
        *await _read(connection, "queued", QUEUES, str(request_id)),
        *await _read(connection, "session", SESSIONS, request_id),
        *await _read(connection, "call", CALLS, request_id),
    ]
    if role == "switchboard":
        hops += await _read(connection, "received", INBOX, request_id)
    if role == "messenger":
        hops += await _read(connection, "delivery", DELIVERIES, request_id)
    return sorted(hops, key=lambda hop: hop["at"])


async def _read(connection: Connection, what: str, sql: str, key: object) -> list[Hop]:
    return [{"hop": what, **dict(row)} for row in await connection.fetch(sql, key)]
