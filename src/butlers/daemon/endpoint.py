"""A butler's port: it answers health from the moment it is bound, tools once they are registered, and
closes without losing a running call.

Until there is an MCP server, a person can see which phase a butler is in, and which one failed.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from butlers.daemon.http_limits import MAX_HEADER_BYTES, LimitedProtocol
from butlers.daemon.ports import bind_port, hold_port
from butlers.daemon.transport import CALLS_END_S, PATH, STREAMS_END_S, DualTransport
from butlers.tools.callers import InFlight
from butlers.wire.tokens import IDENTITY, ServerIdentity

HEALTH = "/health"
OPEN_PATHS = (HEALTH, IDENTITY)  # they ask for no token
LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "[::1]")
SETTLE_S = 0.3  # a client asks once more after a call, for the tool's output schema
KEEP_ALIVE_S = 75  # longer than our clients keep an idle connection (butlers.wire.http.IDLE_S)

Status = Callable[[], Awaitable[dict[str, Any]]]


class Endpoint:
    def __init__(
        self, port: int, status: Status, in_flight: InFlight, identity: ServerIdentity
    ) -> None:
        self._listener: socket.socket = bind_port(port)
        host, self.port = self._listener.getsockname()
        self.url = f"http://{host}:{self.port}{PATH}"
        self._in_flight = in_flight
        self._gate = HealthGate(status, identity, self.port)
        self._server = EmbeddedServer(
            uvicorn.Config(
                self._gate,
                lifespan="off",
                log_config=None,
                access_log=False,
                ws="none",
                http=LimitedProtocol,
                h11_max_incomplete_event_size=MAX_HEADER_BYTES,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=5,
            )
        )
        self._serving: asyncio.Task[None] | None = None
        self._app: DualTransport
        self._lifespan: Lifespan

    async def open(self) -> None:
        """Answer on the port, for now only with the butler's health."""
        try:
            hold_port(self._listener)
        except BaseException:
            self._listener.close()
            raise
        self._serving = asyncio.create_task(self._server.serve(sockets=[self._listener]))
        while not self._server.started:
            if self._serving.done():
                await self._serving
                raise RuntimeError("the HTTP server ended while it was starting")
            await asyncio.sleep(0.002)

    async def serve(self, app: DualTransport) -> None:
        """Pass requests to the tools."""
        self._app, self._lifespan = app, Lifespan(app.application)
        await self._lifespan.start()
        self._gate.app = app

    async def drain(self) -> None:
        """Reject new calls, close the gate, end the streams. In this order."""
        self._in_flight.refuse_all()
        if self._server.server_state.connections:
            quiet_s = asyncio.get_running_loop().time() - self._in_flight.last_ended
            await asyncio.sleep(max(0.0, SETTLE_S - quiet_s))
        self._gate.app = None
        await self._app.end_streams(CALLS_END_S if self._in_flight.count else STREAMS_END_S)
        await self._lifespan.stop()

    async def close(self) -> None:
        self._server.end()
        if self._serving is not None:
            await self._serving
        self._listener.close()


class HealthGate:
    """Answers ``/health`` and ``/identity`` itself, and passes the rest to ``app`` once that is set."""

    def __init__(self, status: Status, identity: ServerIdentity, port: int) -> None:
        self._status = status
        self._identity, self._port = identity, port
        self.app: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (scope["path"] in OPEN_PATHS or self.app is None):
            response = await self._answer(Request(scope, receive))
            await response(scope, receive, send)
        elif self.app is not None:
            await self.app(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        if not _is_loopback(request.headers.get("host", "")):
            return Response("this host name is not ours", 421)
        if request.url.path == IDENTITY:
            nonce = request.query_params.get("nonce", "")
            return JSONResponse(self._identity.answer(nonce, self._port))
        if request.url.path != HEALTH:
            return JSONResponse({"error": "not serving yet", "retryable": True}, 503)
        return JSONResponse(await self._status())


def _is_loopback(host: str) -> bool:
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


class EmbeddedServer(uvicorn.Server):
    """An HTTP server that shares its process with others and leaves the signals to the fleet."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._ending = asyncio.Event()

    async def main_loop(self) -> None:
        """Tick once a second (uvicorn: ten times), and end at once when told to."""
        ticks = 0
        while not await self.on_tick(ticks):
            ticks += 10
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self._ending.wait()

    def end(self) -> None:
        self.should_exit = True
        self._ending.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # several servers share one process, and the fleet handles its signals
