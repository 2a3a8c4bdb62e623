"""A butler's mail as its mail-tools see it: what waits to be dealt with, and what was asked and said."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from butlers.db.database import Connection


async def list_waiting(
    connection: Connection, queue: str, state: str | None, limit: int, offset: int
) -> list[dict[str, Any]]:
    """Messages that no session has dealt with, oldest first."""
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


async def search_history(
    connection: Connection,
    words: list[str],
    since: datetime | None,
    until: datetime | None,
    limit: int,
) -> list[dict[str, Any]]:
    """Sessions in whose prompt or output all the words occur, newest first."""
    query = """
        SELECT id AS session_id, request_id, trigger_source, prompt, output, outcome, started_at
        FROM sessions
        WHERE prompt || E'\\n' || coalesce(output, '') ILIKE ALL ($1::text[])
          AND ($2::timestamptz IS NULL OR started_at >= $2)
          AND ($3::timestamptz IS NULL OR started_at < $3)
        ORDER BY started_at DESC, id DESC LIMIT $4
        """
    rows = await connection.fetch(query, _patterns(words), since, until, limit)
    return [dict(row) for row in rows]


async def search_inbox(
    connection: Connection,
    words: list[str],
    since: datetime | None,
    until: datetime | None,
    limit: int,
) -> list[dict[str, Any]]:
    """Of the Switchboard: messages of all butlers in which all the words occur, newest first."""
    query = """
        SELECT request_id, channel, sender, text, state, received_at FROM message_inbox
        WHERE text ILIKE ALL ($1::text[])
          AND ($2::timestamptz IS NULL OR received_at >= $2)
          AND ($3::timestamptz IS NULL OR received_at < $3)
        ORDER BY received_at DESC, request_id DESC LIMIT $4
        """
    rows = await connection.fetch(query, _patterns(words), since, until, limit)
    return [dict(row) for row in rows]


async def count_mail(connection: Connection, queue: str, since: datetime) -> dict[str, Any]:
    waiting = await connection.fetch(
        """
        SELECT state, count(*) AS number, min(payload->'request'->>'received_at') AS oldest
        FROM queue_items WHERE queue = $1 AND state <> 'done' GROUP BY state ORDER BY state
        """,
        queue,
    )
    outcomes = await connection.fetch(
        """
        SELECT coalesce(outcome, 'running') AS outcome, count(*) AS number FROM sessions
        WHERE started_at >= $1 AND trigger_source = 'route' GROUP BY 1 ORDER BY 1
        """,
        since,
    )
    return {
        "waiting": {row["state"]: row["number"] for row in waiting},
        "oldest_waiting": min((row["oldest"] for row in waiting if row["oldest"]), default=None),
        "dealt_with": {row["outcome"]: row["number"] for row in outcomes},
    }


def _patterns(words: list[str]) -> list[str]:
    return [f"%{_literal(word)}%" for word in words]


def _literal(word: str) -> str:
    return word.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
