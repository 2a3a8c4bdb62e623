"""The audit of tool calls: one row per call, in the transaction of its effect."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from butlers.db.database import Connection
from butlers.domain.caller import Caller
from butlers.domain.ids import uuid7


@dataclass(frozen=True, slots=True)
class CallRecord:
    caller: Caller
    tool: str
    arguments: dict[str, Any]
    ok: bool
    duration_ms: int
    replayed: bool = False
    error: str | None = None
    result_digest: str | None = None  # of what was answered; the answer itself is not kept here
    result_bytes: int | None = None


_INSERT = """
INSERT INTO tool_calls (id, session_id, request_id, caller_kind, caller, tool, arguments,
                        ok, replayed, error, duration_ms, result_digest, result_bytes)
SELECT $1::uuid, $2::uuid, $3::uuid, $4, $5, $6, $7::jsonb, $8::boolean, $9::boolean, $10, $11::integer,
       $12, $13::integer
"""
# The commit of this transaction does not wait for the disk: a crash of the server may forget the row.
_INSERT_UNHURRIED = f"""
WITH pace AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true) AS set)
{_INSERT} FROM pace WHERE pace.set IS NOT NULL
"""


async def record_call(connection: Connection, call: CallRecord, *, hurry: bool = True) -> None:
    """``hurry=False`` is for a transaction that holds nothing but this note."""
    await connection.execute(
        _INSERT if hurry else _INSERT_UNHURRIED,
        uuid7(),
        call.caller.session_id,
        call.caller.request_id,
        call.caller.kind,
        call.caller.name,
        call.tool,
        call.arguments,
        call.ok,
        call.replayed,
        call.error,
        call.duration_ms,
        call.result_digest,
        call.result_bytes,
    )
