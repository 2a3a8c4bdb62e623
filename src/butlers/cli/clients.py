"""Clients that speak as the owner to the butlers of this home."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import typer

from butlers.config.settings import Settings
from butlers.domain.caller import CallerKind
from butlers.domain.errors import ButlersError, NotFound
from butlers.wire import directory
from butlers.wire.client import McpClient
from butlers.wire.tokens import FleetKey

OWNER = "owner"
T = TypeVar("T")


def running_butlers(settings: Settings) -> list[str]:
    names = sorted(directory.entries(settings.home))
    if not names:
        raise NotFound("no butler runs here", hint="`make up` starts the fleet")
    return names


def owner_client(settings: Settings, butler: str) -> McpClient:
    entry = directory.find(settings.home, butler)
    key = FleetKey.load(settings.home)
    return McpClient(butler, entry.url, lambda: key.mint(CallerKind.OWNER, OWNER, butler))


async def ask_all(names: Sequence[str], ask: Callable[[str], Awaitable[T]]) -> list[T]:
    """What each answers. One that does not is said, and keeps nobody from seeing the others."""
    answers = await asyncio.gather(*(ask(name) for name in names), return_exceptions=True)
    found: list[T] = []
    for name, answer in zip(names, answers, strict=True):
        if isinstance(answer, ButlersError):
            typer.echo(f"{name}: {answer}", err=True)
        elif isinstance(answer, BaseException):
            raise answer
        else:
            found.append(answer)
    return found
