"""Clients that speak as the owner to the butlers of this home."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from butlers.config.settings import Settings
from butlers.domain.caller import CallerKind
from butlers.domain.errors import ButlersError, NotFound
from butlers.wire import directory
from butlers.wire.client import McpClient
from butlers.wire.tokens import FleetKey

OWNER = "owner"
SWITCHBOARD = "switchboard"
WHOLE_ID = 36  # characters of a UUID


def running_butlers(settings: Settings) -> list[str]:
    names = sorted(directory.entries(settings.home))
    if not names:
        raise NotFound("no butler runs here", hint="`make up` starts the fleet")
    return names


async def known_butlers(settings: Settings) -> list[str]:
    """Those that run, and those that the Switchboard knows and that do not: what they have on record is
    missing from an answer, which must be seen."""
    running = running_butlers(settings)
    if SWITCHBOARD not in running:
        return running
    try:
        async with owner_client(settings, SWITCHBOARD) as client:
            registered = (await client.call("registry_list"))["butlers"]
    except ButlersError:
        return running  # it is asked again with the others, and named then
    return sorted({*running, *(butler["name"] for butler in registered)})


def owner_client(settings: Settings, butler: str) -> McpClient:
    entry = directory.find(settings.home, butler)
    key = FleetKey.load(settings.home)
    return McpClient(butler, entry.url, lambda: key.mint(CallerKind.OWNER, OWNER, butler))


def ask(butler: str, tool: str, **arguments: Any) -> Any:
    """One call as the owner, from a command that has nothing else to wait for."""

    async def call() -> Any:
        async with owner_client(Settings.from_environ(), butler) as client:
            return await client.call(tool, arguments)

    return asyncio.run(call())


def find_by_beginning(beginning: str, ids: Sequence[str], what: str, command: str) -> str:
    """The one id that begins so; a whole id is taken as it is, however long ago it was."""
    matches = [known for known in ids if known.startswith(beginning)]
    if len(matches) == 1:
        return matches[0]
    if not matches and len(beginning) == WHOLE_ID:
        return beginning
    raise NotFound(
        f"{len(matches) or 'no'} {what} begin with {beginning!r}", hint=f"`{command}` shows them"
    )
