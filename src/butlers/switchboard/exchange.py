"""Requests from one butler to another: a shared tool of the target, called by the Switchboard.

A butler reaches no other butler directly. The Switchboard passes the request on under its own name, and only
to the tools that the target shares, so that it cannot be used to give orders.
"""

from __future__ import annotations

from typing import Any

import structlog

from butlers.db.database import Database
from butlers.domain.caller import PEERS
from butlers.domain.errors import NotFound
from butlers.domain.module import ModuleDisabled
from butlers.domain.registration import Registration
from butlers.switchboard import registry
from butlers.tools.context import CallContext
from butlers.tools.declaration import SHARED_PREFIX, Effect, tool
from butlers.wire.client import Peers

log = structlog.get_logger()

FORGET = "memory_forget_copies"  # tool of butlers with a memory; idempotent


class PeerExchange:
    def __init__(self, database: Database, peers: Peers) -> None:
        self._database = database
        self._peers = peers

    async def ask(self, asker: str, target: str, name: str, arguments: dict[str, Any]) -> Any:
        """Return the answer of the target's shared tool."""
        found = await self._find(target, asker)
        log.info("butler asks another", asker=asker, target=target, tool=name)
        return await self._peers.call(found.name, found.url, f"{SHARED_PREFIX}{name}", arguments)

    async def shared_tools(self, asker: str, target: str) -> list[dict[str, Any]]:
        found = await self._find(target, asker)
        return [
            {
                "tool": one["name"].removeprefix(SHARED_PREFIX),
                "description": one["description"],
                "arguments": one["inputSchema"].get("properties", {}),
            }
            for one in await self._peers.list_tools(found.name, found.url)
            if one["name"].startswith(SHARED_PREFIX)
        ]

    async def forget(self, asker: str, copies: dict[str, Any]) -> dict[str, Any]:
        """Make every other butler with a memory forget these copies. Raises if one is away."""
        async with self._database.transaction() as connection:
            known = await registry.list_registrations(connection)
        told: dict[str, Any] = {}
        for other in (one for one in known if one.name != asker):
            try:
                told[other.name] = await self._peers.call(other.name, other.url, FORGET, copies)
            except (NotFound, ModuleDisabled):
                continue  # it has no memory
        return told

    async def _find(self, target: str, asker: str) -> Registration:
        async with self._database.transaction() as connection:
            known = await registry.list_registrations(connection)
        others = {one.name: one for one in known if one.name != asker}
        if target not in others:
            names = ", ".join(sorted(others))
            raise NotFound(f"there is no other butler {target!r}", hint=f"butlers: {names}")
        return others[target]


@tool(callers=PEERS, effect=Effect.LOOK)
async def peer_ask(
    ctx: CallContext, target: str, tool: str | None = None, arguments: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Ask another butler by one of the tools that it shares; without a tool, list those."""
    exchange = ctx.service(PeerExchange)
    if tool is None:
        return {"tools": await exchange.shared_tools(ctx.caller.name, target)}
    return {"answer": await exchange.ask(ctx.caller.name, target, tool, arguments or {})}


@tool(callers=PEERS, effect=Effect.LONG)
async def peer_forget(ctx: CallContext, hashes: list[str], requests: list[str]) -> dict[str, Any]:
    """Make every other butler forget copies of what the asking butler has forgotten."""
    copies = {"hashes": hashes, "requests": requests}
    return {"told": await ctx.service(PeerExchange).forget(ctx.caller.name, copies)}


TOOLS = (peer_ask, peer_forget)
