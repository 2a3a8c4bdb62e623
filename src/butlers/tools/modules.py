"""How a butler's modules are, and switching one off without stopping the butler."""

from __future__ import annotations

from typing import Any

from butlers.domain.caller import OUTSIDERS, OWNER_ONLY
from butlers.tools.base import Effect, tool
from butlers.tools.context import CallContext


@tool(callers=OUTSIDERS, effect=Effect.READ, name="module.states", aliases=("module_states",))
async def module_states(ctx: CallContext) -> dict[str, Any]:
    """Each module: whether it is active or failed (in which phase, why), and whether it is switched on."""
    return {"modules": [state.as_dict() for state in ctx.services.modules.states()]}


# LONG: the switch is thrown only after its own transaction has committed.
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


TOOLS = (module_states, module_set_enabled)
