"""What one butler's tables know of a request: each hop with its time, as far as it went here."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from butlers.db.database import Connection
from butlers.domain.request import joined

Hop = dict[str, Any]

QUEUES = """
SELECT created_at AS at, queue, state, attempts, error, run_after, finished_at,
       result ->> 'command' AS command
FROM queue_items WHERE queue IN ('inbox', 'commands', 'routes') AND key = ANY($1)
"""
HANDED_ON = """
SELECT created_at AS at, queue, state, attempts, error, run_after, finished_at FROM queue_items
WHERE queue IN ('notify', 'deliveries') AND payload ->> 'request_id' = $1
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
SELECT received_at AS at, channel, sender, sender_roles, thread, policy_tier, state, state_reason,
       jsonb_array_length(attachments) AS attachments
FROM message_inbox WHERE request_id = $1
"""
DECISIONS = """
SELECT decided_at AS at, target, rule, reason, part, after_previous, routed_at, ended_at, ended_well
FROM route_decisions WHERE request_id = $1 ORDER BY position
"""
DELIVERIES = """
SELECT accepted_at AS at, delivery_id, origin, intent, channel, target, state, reason, not_before,
       expires_at, provider_message_id, delivered_at
FROM deliveries WHERE request_id = $1
"""
ATTEMPTS = """
SELECT started_at AS at, delivery_id, number, channel, target, ended_at, outcome, error_code, error,
       response
FROM delivery_attempts JOIN deliveries USING (delivery_id) WHERE request_id = $1
"""


async def read_path(connection: Connection, request_id: UUID, *, role: str) -> list[Hop]:
    named = str(request_id)
    keys = [named]
    if role == "switchboard":
        decided = await _read(connection, "decided", DECISIONS, request_id)
        keys += [joined(named, hop["target"]) for hop in decided]
    hops = [
        *await _read(connection, "queued", QUEUES, keys),
        *await _read(connection, "queued", HANDED_ON, named),
        *await _read(connection, "session", SESSIONS, request_id),
        *await _read(connection, "call", CALLS, request_id),
    ]
    if role == "switchboard":
        hops += [*await _read(connection, "received", INBOX, request_id), *decided]
    if role == "messenger":
        hops += await _read(connection, "delivery", DELIVERIES, request_id)
        hops += await _read(connection, "attempt", ATTEMPTS, request_id)
    return sorted(hops, key=lambda hop: hop["at"])


async def _read(connection: Connection, what: str, sql: str, key: object) -> list[Hop]:
    return [{"hop": what, **dict(row)} for row in await connection.fetch(sql, key)]


async def routed_text(connection: Connection, request_id: UUID) -> str:
    """All that came with a request to this butler, as it was routed: its text and what was said before."""
    found: str | None = await connection.fetchval(
        "SELECT payload::text FROM queue_items WHERE queue = 'routes' AND key = $1", str(request_id)
    )
    return found or ""


async def routed_message(connection: Connection, request_id: UUID) -> str:
    """The words of a request to this butler, without what was said before."""
    found: str | None = await connection.fetchval(
        "SELECT payload ->> 'text' FROM queue_items WHERE queue = 'routes' AND key = $1",
        str(request_id),
    )
    return found or ""
