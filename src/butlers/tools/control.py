"""Tools about the butler itself: status, modules, and the Switchboard's orders to stop, pause or resume."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from butlers.domain.caller import EVERYONE, OWNER_ONLY, PEERS
from butlers.domain.errors import NotAllowed
from butlers.domain.module import BriefPart
from butlers.domain.queues import ROUTES, SWITCHBOARD
from butlers.queue import leased_queue as queue
from butlers.queue.pause import Pause, apply_order
from butlers.tools.context import CallContext
from butlers.tools.declaration import Effect, tool


@tool(callers=EVERYONE, effect=Effect.LOOK, shared=True)
async def status(ctx: CallContext) -> dict[str, Any]:
    """This butler's health, modules and queues."""
    return await ctx.services.status()


@tool(callers=OWNER_ONLY, effect=Effect.READ, name="module.states", aliases=("module_states",))
async def module_states(ctx: CallContext) -> dict[str, Any]:
    """Each module: active or failed (in which phase, why), and whether it is switched on."""
    return {"modules": [state.as_dict() for state in ctx.services.modules.states()]}


# LONG: the module is switched only after the transaction has committed.
@tool(
    callers=OWNER_ONLY,
    effect=Effect.LONG,
    name="module.set_enabled",
    aliases=("module_set_enabled",),
)
async def module_set_enabled(ctx: CallContext, name: str, enabled: bool) -> dict[str, Any]:
    """Switch a module's tools on or off, from now on and after restarts.

    A module that depends on one that is off is off with it, and comes back with it.
    """
    return (await ctx.services.modules.set_enabled(name, enabled)).as_dict()


@tool(callers=PEERS, effect=Effect.READ)
async def brief(ctx: CallContext, part: BriefPart) -> dict[str, Any]:
    """Return this butler's lines for the morning brief or the evening review."""
    return {"lines": await ctx.services.modules.brief(ctx, part)}


@tool(callers=PEERS, effect=Effect.LONG)
async def control_stop(ctx: CallContext) -> dict[str, Any]:
    """End every running session of this butler at once."""
    _check_caller(ctx)
    return {"stopped": len(ctx.services.spawner.stop_all())}


@tool(callers=PEERS)
async def control_pause(ctx: CallContext, until: datetime | None = None) -> dict[str, Any]:
    """Start no sessions until then, or until resumed. Messages are still accepted."""
    _check_caller(ctx)
    await apply_order(ctx.connection, Pause(ctx.clock.now(), until), ctx.services.pause_state)
    return {"paused": True}


@tool(callers=PEERS)
async def control_resume(ctx: CallContext) -> dict[str, Any]:
    """End the pause and start the sessions that waited."""
    _check_caller(ctx)
    return {"was_paused": await apply_order(ctx.connection, None, ctx.services.pause_state)}


@tool(callers=PEERS)
async def control_retry(ctx: CallContext) -> dict[str, Any]:
    """Try again at once what waits: for the owner, for a model, or for a later time."""
    _check_caller(ctx)
    return {"due": await queue.make_due(ctx.connection, ROUTES, kept=True)}


def _check_caller(ctx: CallContext) -> None:
    if ctx.caller.name != SWITCHBOARD:
        raise NotAllowed(f"only the Switchboard may call this, not {ctx.caller.name}")


TOOLS = (
    status,
    module_states,
    module_set_enabled,
    brief,
    control_stop,
    control_pause,
    control_resume,
    control_retry,
)
