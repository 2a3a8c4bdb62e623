"""What answers on a butler's port from the moment it is bound: its health at once, its tools once they stand.

So a person sees which phase a butler is in, and which one failed, while there is no MCP server yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

HEALTH = "/health"
LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "[::1]")

Status = Callable[[], Awaitable[dict[str, Any]]]


class FrontDoor:
    def __init__(self, status: Status) -> None:
        self._status = status
        self._behind: ASGIApp | None = None

    def open(self, app: ASGIApp | None) -> None:
        """Let callers through to the tools; None closes the door again."""
        self._behind = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (scope["path"] == HEALTH or self._behind is None):
            response = await self._answer(Request(scope, receive))
            await response(scope, receive, send)
        elif self._behind is not None:
            await self._behind(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        if not _is_ours(request.headers.get("host", "")):
            return Response("this host name is not ours", 421)
        if request.url.path != HEALTH:
            return JSONResponse({"error": "not serving yet", "retryable": True}, 503)
        return JSONResponse(await self._status())


def _is_ours(host: str) -> bool:
    name = host if host.endswith("]") else host.rsplit(":", 1)[0]
    return name in LOOPBACK_HOSTS


class Lifespan:
    """Runs an application's lifespan in one task: its task groups must end where they began."""

    def __init__(self, app: Starlette) -> None:
        self._app = app
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        started = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run(started))
        await asyncio.wait([started, self._task], return_when=asyncio.FIRST_COMPLETED)
        if self._task.done():
            await self._task

    async def stop(self) -> None:
        self._stop.set()
        if self._task is not None:
            await self._task

    async def _run(self, started: asyncio.Future[None]) -> None:
        async with self._app.router.lifespan_context(self._app):
            started.set_result(None)
            await self._stop.wait()
