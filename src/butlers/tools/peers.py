"""Data of other butlers, asked for through the Switchboard."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from butlers.domain.caller import SESSIONS
from butlers.domain.errors import NotAllowed
from butlers.domain.provenance import Trust
from butlers.tools.context import CallContext, require_trusted_input
from butlers.tools.declaration import Effect, tool

DEEPEST = 20


async def ask_peer(
    ctx: CallContext, butler: str, tool: str, arguments: Mapping[str, Any] | None = None
) -> Any:
    """Return the answer of a tool that another butler shares, for use in a tool of a module.

    Raises NotFound without such a butler or tool, and PeerUnavailable while it is away. An answer with rows
    of untrusted origin taints the session.
    """
    answer = await _ask(ctx, butler, tool, dict(arguments or {}))
    return answer["answer"]


@tool(callers=SESSIONS, effect=Effect.LOOK)
async def ask_butler(
    ctx: CallContext,
    butler: str,
    tool: str | None = None,
    arguments: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Call a tool that another butler shares. Without a tool: list them."""
    require_trusted_input(ctx, f"share data with {butler}")
    return await _ask(ctx, butler, tool, arguments)


async def _ask(
    ctx: CallContext, butler: str, tool: str | None, arguments: dict[str, Any] | None
) -> dict[str, Any]:
    if ctx.services.switchboard is None:
        raise NotAllowed(f"{ctx.butler} has no Switchboard to ask through")
    asked = {"target": butler, "tool": tool, "arguments": arguments}
    answer: dict[str, Any] = await ctx.services.switchboard("peer_ask", asked)
    if _is_untrusted(answer):
        ctx.outside.add("ask_butler")
    return answer


def _is_untrusted(value: Any, depth: int = 0) -> bool:
    """Return whether a row in the answer says that it comes from other people."""
    if depth > DEEPEST:
        return True
    if isinstance(value, list):
        return any(_is_untrusted(one, depth + 1) for one in value)
    if not isinstance(value, Mapping):
        return False
    source = value.get("source")
    if isinstance(source, Mapping) and source.get("trust") == Trust.OUTSIDE:
        return True
    return any(_is_untrusted(one, depth + 1) for one in value.values())


TOOLS = (ask_butler,)
