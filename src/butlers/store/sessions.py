"""The session log: what each session was asked, and what came of it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from butlers.domain.redaction import redactor
from butlers.domain.session import SessionRequest, SessionResult
from butlers.domain.trace import current_trace
from butlers.store.database import Connection


async def open_session(connection: Connection, session: SessionRequest, runtime: str) -> None:
    await connection.execute(
        """
        INSERT INTO sessions (id, request_id, trigger_source, runtime, prompt, trace_id)
        VALUES ($1, $2, $3, $4, $5, $6)
        """,
        session.session_id,
        session.request_id,
        session.trigger_source,
        runtime,
        redactor.scrub(session.prompt),
        trace.trace_id if (trace := current_trace()) else None,
    )


async def close_session(
    connection: Connection, session_id: UUID, result: SessionResult, duration_ms: int
) -> None:
    await connection.execute(
        """
        UPDATE sessions
        SET output = $2, outcome = $3, success = $4, error = $5, duration_ms = $6,
            input_tokens = $7, output_tokens = $8, completed_at = now()
        WHERE id = $1
        """,
        session_id,
        redactor.scrub(result.text),
        result.outcome,
        result.ok,
        result.error and redactor.scrub(result.error),
        duration_ms,
        result.usage.get("input_tokens"),
        result.usage.get("output_tokens"),
    )


async def list_sessions(connection: Connection, limit: int, offset: int) -> list[dict[str, Any]]:
    rows = await connection.fetch(
        """
        SELECT id, trigger_source, runtime, outcome, success, error, duration_ms, started_at,
               completed_at
        FROM sessions ORDER BY started_at DESC, id DESC LIMIT $1 OFFSET $2
        """,
        limit,
        offset,
    )
    return [dict(row) for row in rows]


async def get_session(connection: Connection, session_id: UUID) -> dict[str, Any] | None:
    """Everything that is known of one session, its tool calls included."""
    row = await connection.fetchrow("SELECT * FROM sessions WHERE id = $1", session_id)
    if row is None:
        return None
    calls = await connection.fetch(
        """
        SELECT tool, arguments, ok, replayed, error, duration_ms, called_at
        FROM tool_calls WHERE session_id = $1 ORDER BY id
        """,
        session_id,
    )
    return {**dict(row), "tool_calls": [dict(call) for call in calls]}
