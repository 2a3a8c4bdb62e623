"""Editing the soul: the owner's to do, and a session's where the configuration allows it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field

from butlers.domain.caller import OWNER_ONLY, SESSIONS
from butlers.sessions.soul import LONGEST, Soul
from butlers.tools.base import ToolSpec, spec_of, tool
from butlers.tools.context import CallContext
from butlers.tools.outside import refuse_strangers


@tool(callers=SESSIONS)
async def soul_edit(
    ctx: CallContext,
    text: Annotated[str, Field(min_length=1, max_length=LONGEST)],
    replaces: Annotated[str, Field(min_length=1, max_length=LONGEST)] | None = None,
) -> dict[str, Any]:
    """Change who you are, from the next session on: the whole soul, or the one passage that it replaces."""
    refuse_strangers(ctx, "edit the soul")
    by = f"{ctx.caller.kind}:{ctx.caller.session_id or ctx.caller.name}"
    number = await asyncio.to_thread(_soul(ctx).edit, text, by, ctx.clock.now(), replaces)
    return {"edit": number}


@tool(callers=SESSIONS)
async def soul_undo(ctx: CallContext) -> dict[str, Any]:
    """Take the last edit of the soul back."""
    refuse_strangers(ctx, "edit the soul")
    return {"undone": await asyncio.to_thread(_soul(ctx).undo)}


def soul_specs(*, by_sessions: bool) -> Iterator[ToolSpec]:
    callers = SESSIONS if by_sessions else OWNER_ONLY
    return (replace(spec_of(function), callers=callers) for function in TOOLS)


def _soul(ctx: CallContext) -> Soul:
    config = ctx.services.config
    return Soul(config.directory, ctx.skills.shelf.registry.home, config.name)


TOOLS = (soul_edit, soul_undo)
