"""A butler's port: answers from the moment it is bound, and closes without losing a running call."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import uvicorn

from butlers.daemon.health_gate import FrontDoor, Lifespan, Status
from butlers.daemon.ports import bind_port, hold_port
from butlers.daemon.transport import CALLS_END_S, PATH, STREAMS_END_S, DualTransport
from butlers.tools.in_flight import InFlight

SETTLE_S = 0.3  # who is connected asks once more after a call, for the tool's output schema


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._over = asyncio.Event()

    async def main_loop(self) -> None:
        """A look a second, for the date in its answers, where the library takes ten; told to end, it does."""
        ticks = 0
        while not await self.on_tick(ticks):
            ticks += 10
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self._over.wait()

    def end(self) -> None:
        self.should_exit = True
        self._over.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # several servers share one process; signals belong to its owner


class Endpoint:
    def __init__(self, port: int, status: Status, in_flight: InFlight) -> None:
        self._listener: socket.socket = bind_port(port)
        host, self.port = self._listener.getsockname()
        self.url = f"http://{host}:{self.port}{PATH}"
        self._in_flight = in_flight
        self._door = FrontDoor(status)
        self._server = _Server(
            uvicorn.Config(
                self._door,
                lifespan="off",
                log_config=None,
                access_log=False,
                ws="none",
                timeout_graceful_shutdown=5,
            )
        )
        self._serving: asyncio.Task[None] | None = None
        self._app: DualTransport
        self._lifespan: Lifespan

    async def open(self) -> None:
        """Answer on the port; for now with nothing but the butler's health."""
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
        """Let callers through to the tools."""
        self._app, self._lifespan = app, Lifespan(app.application)
        await self._lifespan.start()
        self._door.open(app)

    async def drain(self) -> None:
        """Refuse every call, shut the door, end the streams. In this order."""
        self._in_flight.refuse_all()
        if self._server.server_state.connections:
            quiet_s = asyncio.get_running_loop().time() - self._in_flight.last_ended
            await asyncio.sleep(max(0.0, SETTLE_S - quiet_s))
        self._door.open(None)
        await self._app.end_streams(CALLS_END_S if self._in_flight.count else STREAMS_END_S)
        await self._lifespan.stop()

    async def close(self) -> None:
        self._server.end()
        if self._serving is not None:
            await self._serving
        self._listener.close()
