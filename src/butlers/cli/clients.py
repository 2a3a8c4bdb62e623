"""Clients that speak as the owner to the butlers of this home."""

from __future__ import annotations

from butlers.config.settings import Settings
from butlers.domain.caller import CallerKind
from butlers.domain.errors import NotFound
from butlers.wire import directory
from butlers.wire.client import McpClient
from butlers.wire.tokens import FleetKey

OWNER = "owner"


def running_butlers(settings: Settings) -> list[str]:
    names = sorted(directory.entries(settings.home))
    if not names:
        raise NotFound("no butler runs here", hint="`make up` starts the fleet")
    return names


def owner_client(settings: Settings, butler: str) -> McpClient:
    entry = directory.find(settings.home, butler)
    key = FleetKey.load(settings.home)
    return McpClient(butler, entry.url, lambda: key.mint(CallerKind.OWNER, OWNER, butler))
