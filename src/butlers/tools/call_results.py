"""Results of tool calls: errors as MCP results, the recorded form of a result, and the audit row."""

from __future__ import annotations

import inspect
import logging
from dataclasses import dataclass
from typing import Any

import asyncpg
import mcp_types as mt
import structlog
from fastmcp.exceptions import ToolError, ValidationError
from fastmcp.tools.base import ToolResult
from pydantic import TypeAdapter
from pydantic import ValidationError as PydanticValidationError

from butlers.db.database import FULL, Connection, is_gone, unavailable
from butlers.domain.caller import Caller
from butlers.domain.clock import uuid7
from butlers.domain.errors import (
    ButlersError,
    DatabaseExhausted,
    InternalError,
    InvalidArguments,
    PeerFailed,
    error_from_wire,
)
from butlers.domain.redaction import redactor
from butlers.tools.declaration import ToolSpec
from butlers.wire.codec import describe

log = structlog.get_logger()

# PostgreSQL's errors for a NUL in a text and in a JSON document.
UNSTORABLE = (asyncpg.CharacterNotInRepertoireError, asyncpg.UntranslatableCharacterError)
_content_blocks: TypeAdapter[list[mt.ContentBlock]] = TypeAdapter(list[mt.ContentBlock])


def as_result(error: ButlersError) -> ToolResult:
    """Return an error as an MCP result: text for a model, fields for a program."""
    fields = error_fields(error)
    hint = f"\nhint: {fields['hint']}" if error.hint else ""
    return ToolResult(
        content=[mt.TextContent(type="text", text=f"{fields['message']}{hint}")],
        structured_content={"error": fields},
        is_error=True,
    )


def answer_of(result: ToolResult) -> Any:
    """Return the answer that a client reads from a result, or raise the error in it."""
    content, meta = result.structured_content, result.meta or {}
    if not result.is_error:
        wrapped = (meta.get("fastmcp") or {}).get("wrap_result")
        return content["result"] if content and wrapped else content
    fields = (content or {}).get("error")
    if isinstance(fields, dict):
        raise error_from_wire(**fields)
    raise PeerFailed(" ".join(getattr(block, "text", "") for block in result.content))


def error_fields(error: ButlersError) -> dict[str, Any]:
    return {
        "code": error.code,
        "message": redactor.scrub(error.message),
        "hint": error.hint and redactor.scrub(error.hint),
        "retryable": error.retryable,
    }


def domain_error(spec: ToolSpec, error: Exception) -> ButlersError:
    cause = error.__cause__ or error if isinstance(error, ToolError) else error
    if isinstance(cause, ButlersError):
        return cause
    if isinstance(cause, asyncpg.PostgresError | asyncpg.InterfaceError) and is_gone(cause):
        return unavailable(cause)
    if isinstance(cause, OSError) and cause.errno in FULL:
        return DatabaseExhausted(f"the disk is full ({cause.strerror})")
    if isinstance(cause, UNSTORABLE) or isinstance(cause.__cause__, UnicodeEncodeError):
        return InvalidArguments(
            f"{spec.name}: an argument contains a NUL byte or is not valid Unicode",
            hint="send text, not binary data",
        )
    if isinstance(cause, asyncpg.DataError):
        return InvalidArguments(f"{spec.name}: a value is out of range", hint=usage(spec))
    log.error("tool crashed", tool=spec.name, exc_info=cause)
    return crash_error(spec.name, cause)


def crash_error(tool: str, error: BaseException) -> InternalError:
    """Return the error of a crash. The caller sees the type of the exception only."""
    return InternalError(f"{tool} failed: {type(error).__name__}", hint="the butler's log says why")


def explain(error: ValidationError) -> str:
    cause = error.__cause__
    return describe(cause) if isinstance(cause, PydanticValidationError) else str(error)


def usage(spec: ToolSpec) -> str:
    _context, *arguments = inspect.signature(spec.function).parameters
    return f"{spec.name} takes {', '.join(arguments) or 'no arguments'}"


def freeze(result: ToolResult) -> dict[str, Any]:
    return {
        "structured": result.structured_content,
        "content": [block.model_dump(mode="json", by_alias=True) for block in result.content],
        "meta": result.meta,
    }


def replay(recorded: dict[str, Any]) -> ToolResult:
    content = _content_blocks.validate_python(recorded["content"])
    return ToolResult(content, recorded["structured"], recorded["meta"])


def bound_error(error: Exception) -> ToolError:
    """Wrap a tool's error, so that the protocol library does not log it."""
    return ToolError(type(error).__name__, log_level=logging.DEBUG)


@dataclass(frozen=True, slots=True)
class CallRecord:
    caller: Caller
    tool: str
    arguments: dict[str, Any]
    ok: bool
    duration_ms: int
    replayed: bool = False
    error: str | None = None
    result_digest: str | None = None  # of the result, which is not stored here
    result_bytes: int | None = None
    outside: tuple[str, ...] = ()  # untrusted text that the session had read by then


_INSERT = """
INSERT INTO tool_calls (id, session_id, request_id, caller_kind, caller, tool, arguments,
                        ok, replayed, error, duration_ms, result_digest, result_bytes, outside)
SELECT $1::uuid, $2::uuid, $3::uuid, $4, $5, $6, $7::jsonb, $8::boolean, $9::boolean, $10, $11::integer,
       $12, $13::integer, $14::text[]
"""
# The commit does not wait for the disk: a crash of the database server may lose the row.
_INSERT_ASYNC = f"""
WITH pace AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true) AS set)
{_INSERT} FROM pace WHERE pace.set IS NOT NULL
"""


async def record_call(connection: Connection, call: CallRecord, *, durable: bool = True) -> None:
    """Insert the audit row. ``durable=False`` is for a transaction that writes nothing else."""
    await connection.execute(
        _INSERT if durable else _INSERT_ASYNC,
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
        call.outside,
    )
