"""What the house does with a butler: stop its sessions, pause it, let it go on. The Switchboard asks."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from butlers.domain.caller import PEERS
from butlers.domain.errors import NotAllowed
from butlers.domain.queues import SWITCHBOARD
from butlers.queue.pause import Pause, apply_order
from butlers.tools.base import Effect, tool
from butlers.tools.context import CallContext


@tool(callers=PEERS, effect=Effect.LONG)
async def control_stop(ctx: CallContext) -> dict[str, Any]:
    """End every running session of this butler at once."""
    _check_caller(ctx)
    return {"stopped": len(ctx.services.spawner.stop_all())}


@tool(callers=PEERS)
async def control_pause(ctx: CallContext, until: datetime | None = None) -> dict[str, Any]:
    """Start no session until then, or until it is resumed. What comes in is kept."""
    _check_caller(ctx)
    await apply_order(ctx.connection, Pause(ctx.clock.now(), until), ctx.services.pause_state)
    return {"paused": True}


@tool(callers=PEERS)
async def control_resume(ctx: CallContext) -> dict[str, Any]:
    """Go on with what was kept."""
    _check_caller(ctx)
    return {"was_paused": await apply_order(ctx.connection, None, ctx.services.pause_state)}


def _check_caller(ctx: CallContext) -> None:
    if ctx.caller.name != SWITCHBOARD:
        raise NotAllowed(f"only the Switchboard does that, not {ctx.caller.name}")


TOOLS = (control_stop, control_pause, control_resume)
