"""Tools to start, list, show and stop sessions."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from pydantic import Field

from butlers.domain.caller import OWNER_ONLY
from butlers.domain.clock import uuid7
from butlers.domain.errors import NotFound
from butlers.domain.message import check_storable, check_text
from butlers.domain.redaction import redactor
from butlers.domain.session import SessionRequest
from butlers.sessions.session_log import get_session, list_sessions
from butlers.tools.context import CallContext
from butlers.tools.declaration import Effect, tool


@tool(callers=OWNER_ONLY, effect=Effect.LONG)
async def trigger(ctx: CallContext, prompt: str, context: str | None = None) -> dict[str, Any]:
    """Start a session with this prompt and wait for its output. Context is put before the prompt."""
    check_text(prompt)
    if context is not None:
        check_storable("the context", [context])
    session_id: UUID = uuid7()
    result = await ctx.services.spawner.run(
        SessionRequest(
            session_id=session_id,
            prompt=f"{context}\n\n{prompt}" if context else prompt,
            trigger_source="trigger",
            request_id=session_id,
        )
    )
    return {
        "session_id": str(session_id),
        "outcome": str(result.outcome),
        "success": result.ok,
        "output": redactor.scrub(result.text),
        "error": result.error and redactor.scrub(result.error),
        "tool_calls": [
            {
                "tool": redactor.scrub(call.tool),
                "arguments": redactor.scrub_data(call.arguments),
                "ok": call.ok,
                "of_cli": call.of_cli,
                "denied": call.denied,
            }
            for call in result.tool_calls
        ],
    }


# Not for sessions and peers: nobody else may read the prompts and outputs of sessions.
@tool(callers=OWNER_ONLY, effect=Effect.READ)
async def sessions_list(
    ctx: CallContext,
    limit: Annotated[int, Field(ge=1, le=500)] = 20,
    offset: Annotated[int, Field(ge=0, le=1_000_000)] = 0,
    running: bool = False,
) -> dict[str, Any]:
    """Recent sessions, newest first; with running = true only those that have not ended."""
    found = await list_sessions(ctx.connection, limit, offset, running=running)
    return {"sessions": found}


@tool(callers=OWNER_ONLY, effect=Effect.READ)
async def sessions_get(ctx: CallContext, id: UUID) -> dict[str, Any]:  # noqa: A002  (the seed names it so)
    """One session in full: prompt, output, outcome, cost, and every tool call with its arguments."""
    found = await get_session(ctx.connection, id)
    if found is None:
        raise NotFound(f"there is no session {id}", hint="sessions_list shows them")
    return found


@tool(callers=OWNER_ONLY, effect=Effect.LONG)
async def sessions_stop(ctx: CallContext, session_id: UUID | None = None) -> dict[str, Any]:
    """Stop a running session at once, or all of this butler's if none is named."""
    if session_id is None:
        return {"stopped": [str(stopped) for stopped in ctx.services.spawner.stop_all()]}
    if not ctx.services.spawner.stop(session_id):
        raise NotFound(f"no session {session_id} runs here", hint="sessions_list shows them")
    return {"stopped": [str(session_id)]}


TOOLS = (trigger, sessions_list, sessions_get, sessions_stop)
