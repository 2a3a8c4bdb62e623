"""Tool of the owner for the audit log: who called which tool, with which arguments and result."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from pydantic import Field

from butlers.domain.caller import OWNER_ONLY, CallerKind
from butlers.tools.context import CallContext
from butlers.tools.declaration import Effect, tool

_LIST = """
SELECT id, session_id, request_id, caller_kind, caller, tool, arguments, ok, error, called_at
FROM tool_calls
WHERE ($1::text IS NULL OR caller = $1) AND ($2::text IS NULL OR caller_kind = $2)
  AND ($3::uuid IS NULL OR id < $3)
ORDER BY id DESC LIMIT $4
"""


@tool(callers=OWNER_ONLY, effect=Effect.READ)
async def audit_list(
    ctx: CallContext,
    caller: Annotated[str, Field(max_length=200)] | None = None,
    kind: CallerKind | None = None,
    before: UUID | None = None,
    limit: Annotated[int, Field(ge=1, le=200)] = 50,
) -> dict[str, Any]:
    """Audited tool calls of this butler, newest first: writes of everybody, and all calls of sessions."""
    rows = await ctx.connection.fetch(_LIST, caller, kind, before, limit)
    return {"calls": [dict(row) for row in rows]}


TOOLS = (audit_list,)
