"""The session log: the prompt of each session, its terms and its result.

It is also the ledger of the butler's daily budget: a running session counts with its reservation, an ended
one with its use, and one of unknown use, because it was cut short or did not report it, with no less than
its reservation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import structlog

from butlers.broker.ledger import Ledger
from butlers.db.database import Connection, Database, lock_until_commit
from butlers.domain.clock import uuid7
from butlers.domain.json_safe import json_safe
from butlers.domain.redaction import redactor
from butlers.domain.session import Outcome, SessionRequest, SessionResult, ToolCall, Usage
from butlers.domain.trace import current_trace

log = structlog.get_logger()

# The CLI does not report the use of the turn that was cut short.
CUT_SHORT = (Outcome.CANCELLED, Outcome.TIMED_OUT, Outcome.CRASHED)
ERASED = "(forgotten)"
OF_CLI = "cli"  # caller kind of the CLI's own tools
DENIED = "denied by its access level"
MAX_ERROR = 400  # characters of a failed tool's message
MAX_COST = Decimal(999_999)  # a larger figure is a mistake of the CLI


@dataclass(frozen=True, slots=True)
class SessionOpening:
    """Facts about a session that are known before it runs."""

    runtime: str
    model: str | None = None
    access: str | None = None
    sealed_because: str | None = None
    fixed_tokens: int | None = None
    reserved_tokens: int | None = None
    reserved_usd: Decimal | None = None


@dataclass(frozen=True, slots=True)
class EarlierCall:
    """A call with an effect that an earlier session of the same request made."""

    tool: str
    arguments: dict[str, Any]
    outside: tuple[str, ...] = ()  # untrusted text that the session had read by then


@dataclass(frozen=True, slots=True)
class Spent:
    tokens: int
    usd: Decimal
    unpriced: int = 0  # tokens of unknown price


async def open_session(
    connection: Connection, session: SessionRequest, opening: SessionOpening
) -> None:
    await connection.execute(
        """
        INSERT INTO sessions (id, request_id, trigger_source, prompt, trace_id, runtime, model,
                              access, sealed_because, fixed_tokens, reserved_tokens, reserved_usd)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
        """,
        session.session_id,
        session.request_id,
        session.trigger_source,
        redactor.scrub(session.prompt),
        trace.trace_id if (trace := current_trace()) else None,
        opening.runtime,
        opening.model,
        opening.access,
        opening.sealed_because,
        opening.fixed_tokens,
        opening.reserved_tokens,
        opening.reserved_usd,
    )


async def close_session(
    connection: Connection,
    session_id: UUID,
    result: SessionResult,
    duration_ms: int,
    cost_usd: Decimal | None = None,
) -> None:
    ended = result.exit
    await connection.execute(
        """
        UPDATE sessions
        SET output = $2, outcome = $3, success = $4, error = $5, duration_ms = $6,
            input_tokens = $7, output_tokens = $8, cached_tokens = $9, cost_usd = $10,
            model = coalesce($11, model), denials = $12, exit_code = $13, exit_stderr = $14,
            exit_seconds = $15, end_reason = $16, completed_at = now()
        WHERE id = $1
        """,
        session_id,
        _clean(result.text),
        result.outcome,
        result.ok,
        _clean(result.error),
        duration_ms,
        result.usage.input_tokens,
        result.usage.output_tokens,
        result.usage.cached_tokens,
        None if cost_usd is None else min(cost_usd, MAX_COST),
        _clean(result.model),
        [_clean(denial) for denial in result.denials],
        ended.code if ended else None,
        _clean(ended.stderr) if ended else None,
        ended.seconds if ended else None,
        ended.why if ended else None,
    )
    await _record_own_calls(connection, session_id, result.tool_calls)


async def _record_own_calls(
    connection: Connection, session_id: UUID, calls: Sequence[ToolCall]
) -> None:
    """Record calls of the CLI's own tools, as the CLI reported them.

    The butler's tools record their calls themselves. These belong to no request, because they cannot be
    replayed.
    """
    await connection.executemany(
        """
        INSERT INTO tool_calls (id, session_id, caller_kind, caller, tool, arguments, ok, error,
                                duration_ms)
        SELECT $1, id, $3, runtime, $4, $5::jsonb, $6, $7, 0 FROM sessions WHERE id = $2
        """,
        [
            (
                uuid7(),
                session_id,
                OF_CLI,
                _clean(call.tool),
                json_safe(call.arguments),
                call.ok and not call.denied,
                _call_error(call),
            )
            for call in calls
            if call.of_cli
        ],
    )


def _call_error(call: ToolCall) -> str | None:
    if call.denied:
        return DENIED
    if call.ok:
        return None
    message = call.result if isinstance(call.result, str) else ""
    return _clean(message[:MAX_ERROR]) or "no reason given"


async def close_crashed(connection: Connection) -> dict[UUID, datetime]:
    """Close the sessions that ran when their daemon was killed. Return them with their start."""
    rows = await connection.fetch(
        """
        UPDATE sessions
        SET outcome = $1, success = false, completed_at = now(),
            duration_ms = least(extract(epoch FROM now() - started_at) * 1000, 2147483647)::integer,
            error = 'the butler was ended while the session ran', end_reason = 'daemon-ended'
        WHERE completed_at IS NULL RETURNING id, started_at
        """,
        Outcome.CRASHED,
    )
    return {row["id"]: row["started_at"] for row in rows}


async def record_usage(connection: Connection, session_id: UUID, usage: Usage) -> None:
    await connection.execute(
        """
        UPDATE sessions SET input_tokens = $2, output_tokens = $3, cached_tokens = $4, cost_usd = $5
        WHERE id = $1
        """,
        session_id,
        usage.input_tokens,
        usage.output_tokens,
        usage.cached_tokens,
        usage.cost_usd,
    )


async def calls_of_request(connection: Connection, request_id: UUID) -> list[EarlierCall]:
    """Return the calls with an effect that sessions of this request made, oldest first."""
    rows = await connection.fetch(
        """
        SELECT tool, arguments, outside FROM tool_calls AS made
        WHERE request_id = $1 AND session_id IS NOT NULL AND ok AND NOT replayed
          AND EXISTS (SELECT FROM call_journal AS kept
                      WHERE kept.request_id = $1 AND kept.tool = made.tool)
        ORDER BY id
        """,
        request_id,
    )
    return [EarlierCall(row["tool"], row["arguments"], tuple(row["outside"])) for row in rows]


async def spent_since(connection: Connection, since: datetime) -> Spent:
    """Sum what sessions that started since then used or have reserved.

    A session of known use but unknown price counts in tokens alone: its reserved dollars were a guess.
    """
    row = await connection.fetchrow(
        """
        SELECT coalesce(sum(tokens), 0) AS tokens, coalesce(sum(usd), 0) AS usd,
               coalesce(sum(tokens) FILTER (WHERE usd IS NULL), 0) AS unpriced
        FROM (
            SELECT CASE WHEN outcome = ANY($2::text[])
                        THEN greatest(input_tokens + output_tokens, reserved_tokens)
                        ELSE coalesce(input_tokens + output_tokens, reserved_tokens)
                   END AS tokens,
                   CASE WHEN outcome = ANY($2::text[]) THEN greatest(cost_usd, reserved_usd)
                        WHEN input_tokens + output_tokens IS NULL
                        THEN coalesce(cost_usd, reserved_usd)
                        ELSE cost_usd
                   END AS usd
            FROM sessions WHERE started_at >= $1
        ) AS taken
        """,
        since,
        CUT_SHORT,
    )
    assert row is not None
    return Spent(int(row["tokens"]), row["usd"], int(row["unpriced"]))


async def lock_budget(connection: Connection) -> None:
    """Lock the budget until the transaction ends: only one session may take the last of it."""
    await lock_until_commit(connection, "budget")


async def list_sessions(
    connection: Connection, limit: int, offset: int, *, running: bool = False
) -> list[dict[str, Any]]:
    rows = await connection.fetch(
        """
        SELECT id, request_id, left(prompt, 200) AS prompt, trigger_source, runtime, model, access,
               outcome, success, error, input_tokens,
               output_tokens, cost_usd, duration_ms, started_at, completed_at
        FROM sessions WHERE NOT $3 OR completed_at IS NULL
        ORDER BY started_at DESC, id DESC LIMIT $1 OFFSET $2
        """,
        limit,
        offset,
        running,
    )
    return [dict(row) for row in rows]


async def get_session(connection: Connection, session_id: UUID) -> dict[str, Any] | None:
    """Return one session with its tool calls."""
    row = await connection.fetchrow("SELECT * FROM sessions WHERE id = $1", session_id)
    if row is None:
        return None
    calls = await connection.fetch(
        """
        SELECT tool, arguments, ok, replayed, error, called_at, result_digest, result_bytes,
               caller_kind = $2 AS of_cli,
               CASE WHEN caller_kind <> $2 THEN duration_ms END AS duration_ms
        FROM tool_calls WHERE session_id = $1 ORDER BY id
        """,
        session_id,
        OF_CLI,
    )
    return {**dict(row), "tool_calls": [dict(call) for call in calls]}


async def search_sessions(
    connection: Connection,
    patterns: list[str],
    since: datetime | None,
    until: datetime | None,
    limit: int,
) -> list[dict[str, Any]]:
    """Return sessions whose prompt or output matches every ILIKE pattern, newest first."""
    rows = await connection.fetch(
        """
        SELECT id AS session_id, request_id, trigger_source, prompt, output, outcome, started_at
        FROM sessions
        WHERE prompt || E'\\n' || coalesce(output, '') ILIKE ALL ($1::text[])
          AND ($2::timestamptz IS NULL OR started_at >= $2)
          AND ($3::timestamptz IS NULL OR started_at < $3)
        ORDER BY started_at DESC, id DESC LIMIT $4
        """,
        patterns,
        since,
        until,
        limit,
    )
    return [dict(row) for row in rows]


async def count_outcomes(connection: Connection, since: datetime) -> dict[str, int]:
    """Return the number of sessions for routed messages by outcome."""
    rows = await connection.fetch(
        """
        SELECT coalesce(outcome, 'running') AS outcome, count(*) AS number FROM sessions
        WHERE started_at >= $1 AND trigger_source = 'route' GROUP BY 1 ORDER BY 1
        """,
        since,
    )
    return {row["outcome"]: row["number"] for row in rows}


async def sessions_of_request(connection: Connection, request_id: UUID) -> list[dict[str, Any]]:
    rows = await connection.fetch(
        """
        SELECT started_at AS at, id, runtime, model, outcome, error, duration_ms, input_tokens,
               output_tokens, cost_usd
        FROM sessions WHERE request_id = $1
        """,
        request_id,
    )
    return [dict(row) for row in rows]


async def session_calls_of_request(
    connection: Connection, request_id: UUID
) -> list[dict[str, Any]]:
    """Return the tool calls that sessions of this request made."""
    rows = await connection.fetch(
        """
        SELECT called_at AS at, tool, ok, replayed, error, duration_ms FROM tool_calls
        WHERE request_id = $1 AND session_id IS NOT NULL
        """,
        request_id,
    )
    return [dict(row) for row in rows]


def _clean(text: str | None) -> str | None:
    """Replace what PostgreSQL cannot store, and mask known secrets."""
    if text is None:
        return None
    plain = text.replace("\x00", "\N{REPLACEMENT CHARACTER}")
    return redactor.scrub(plain.encode("utf-8", "replace").decode("utf-8"))


async def erase_texts(connection: Connection, session_ids: Sequence[UUID]) -> None:
    """Erase the prompts and outputs of sessions whose content the owner wants forgotten."""
    await connection.execute(
        "UPDATE sessions SET prompt = $2, output = NULL WHERE id = ANY($1::uuid[])",
        list(session_ids),
        ERASED,
    )


@dataclass(frozen=True, slots=True)
class SessionLog:
    """Session log for use outside tool calls."""

    database: Database

    async def recent(self, limit: int = 20, offset: int = 0) -> list[dict[str, Any]]:
        """Newest first."""
        async with self.database.transaction() as connection:
            return await list_sessions(connection, limit, offset)

    async def get(self, session_id: UUID) -> dict[str, Any] | None:
        """Return one session with its tool calls."""
        async with self.database.transaction() as connection:
            return await get_session(connection, session_id)

    async def close(
        self,
        session_id: UUID,
        result: SessionResult,
        duration_ms: int,
        cost_usd: Decimal | None = None,
    ) -> None:
        async with self.database.transaction() as connection:
            await close_session(connection, session_id, result, duration_ms, cost_usd)

    async def close_crashed(self, ledger: Ledger | None = None) -> None:
        """Close the sessions that ran when an earlier daemon of this butler was killed.

        Their usage is what the key broker's ledger says.
        """
        async with self.database.transaction() as connection:
            crashed = await close_crashed(connection)
            for session_id in crashed:
                log.warning("session crashed with its butler", session=str(session_id))
            if not crashed or ledger is None:
                return
            names = {str(session_id): session_id for session_id in crashed}
            totals = ledger.session_totals(names, min(crashed.values()))
            for name, total in totals.items():
                await record_usage(connection, names[name], total.usage)
