"""A butler's port: opened once everything behind it stands, closed without losing a running call."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import uvicorn

from butlers.daemon.calls import InFlight
from butlers.daemon.transport import PATH, DualTransport

SETTLE_S = 0.3  # clients ask once more after a call, for the tool's output schema


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # several servers share one process; signals belong to its owner


class Endpoint:
    def __init__(self, app: DualTransport, listener: socket.socket, in_flight: InFlight) -> None:
        self._app = app
        self._listener = listener
        self._in_flight = in_flight
        self._server = _Server(
            uvicorn.Config(
                app,
                lifespan="on",
                log_config=None,
                access_log=False,
                ws="none",
                timeout_graceful_shutdown=5,
            )
        )
        self._serving: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._serving = asyncio.create_task(self._server.serve(sockets=[self._listener]))
        while not self._server.started:
            if self._serving.done():
                await self._serving
                raise RuntimeError("the MCP server ended while it was starting")
            await asyncio.sleep(0.002)

    async def stop(self, drain_s: float) -> None:
        """Refuse new calls, let running ones finish, end the streams, close the port. In this order."""
        had_calls = self._in_flight.count > 0
        self._in_flight.refuse_all()
        await self._in_flight.wait_idle(drain_s)
        if had_calls:
            await asyncio.sleep(SETTLE_S)
        self._app.end_streams()
        self._server.should_exit = True
        if self._serving is not None:
            await self._serving


def url_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://{host}:{port}{PATH}"
