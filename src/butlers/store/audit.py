"""The audit of tool calls: one row per call, in the transaction of its effect."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from butlers.domain.caller import Caller
from butlers.domain.ids import uuid7
from butlers.store.database import Connection


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


async def record_call(connection: Connection, call: CallRecord) -> None:
    await connection.execute(
        """
        INSERT INTO tool_calls (id, session_id, request_id, caller_kind, caller, tool, arguments,
                                ok, replayed, error, duration_ms, result_digest, result_bytes)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
        """,
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
