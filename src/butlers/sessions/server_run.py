"""One life of a pack's MCP server: from its start to its end, whichever way it ends."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Any, TextIO

import structlog

from butlers.domain.errors import ButlersError, PeerFailed
from butlers.skills.scripts.answer import SecretMask
from butlers.skills.scripts.runner import Pack, ScriptRunner, secrets_of
from butlers.skills.scripts.servers import prepared_server
from butlers.skills.skill import PackMcpServer, ServerKind

if TYPE_CHECKING:
    from fastmcp import Client

log = structlog.get_logger()

START_S = 30.0
CALL_S = 120.0
LAST_WORDS_S = 1.0
KEPT = 64 * 1024  # bytes of what it says on stderr


class Complaints(asyncio.Protocol):
    """What a server says on stderr: the end of it is kept, however much there is."""

    told: TextIO  # what it writes to

    def __init__(self) -> None:
        self._heard = bytearray()
        self._over = asyncio.Event()

    @classmethod
    async def open(cls, stack: AsyncExitStack) -> Complaints:
        reading, writing = os.pipe()
        loop = asyncio.get_running_loop()
        transport, made = await loop.connect_read_pipe(cls, os.fdopen(reading, "rb", 0))
        stack.callback(transport.close)
        made.told = os.fdopen(writing, "w")
        stack.callback(made.told.close)
        return made

    async def last(self) -> str:
        """Its last line, once it has ended and can say no more."""
        self.told.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS_S):
                await self._over.wait()
        lines = self._heard.decode("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else ""

    def data_received(self, data: bytes) -> None:
        self._heard += data
        del self._heard[:-KEPT]

    def connection_lost(self, _error: Exception | None) -> None:
        self._over.set()


class ServerRun:
    """A single task owns the connection from the beginning to the end."""

    def __init__(
        self, pack: Pack, server: PackMcpServer, runner: ScriptRunner, variables: Mapping[str, str]
    ) -> None:
        self._pack, self._server, self._runner = pack, server, runner
        self._values = variables
        self._over = asyncio.Event()
        self._client: asyncio.Future[Client[Any]] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._live(), name=f"server of {pack.skill.label}")

    @property
    def alive(self) -> bool:
        failed = self._client.done() and self._client.exception() is not None
        return not self._task.done() and not failed

    async def client(self) -> Client[Any]:
        return await asyncio.shield(self._client)

    async def stop(self) -> None:
        self._over.set()
        if not self._client.done():
            self._task.cancel()
        await asyncio.wait({self._task})

    async def _live(self) -> None:
        try:
            async with AsyncExitStack() as stack:
                self._client.set_result(await self._connect(stack))
                await self._over.wait()
        except asyncio.CancelledError:
            self._fail(PeerFailed(f"the server {self._title} was ended before it was ready"))
            raise
        except ButlersError as error:
            self._fail(error)
        except Exception:  # the edge: how a stranger's server ends is its own affair
            log.warning("pack server did not end well", server=self._title, exc_info=True)

    async def _connect(self, stack: AsyncExitStack) -> Client[Any]:
        from fastmcp import Client

        complaints = await Complaints.open(stack)
        try:
            async with asyncio.timeout(START_S):
                transport = await self._transport(stack, complaints)
                mode = "legacy" if self._server.kind is ServerKind.LOCAL else "auto"
                client = Client(transport, timeout=CALL_S, init_timeout=START_S, mode=mode)
                return await stack.enter_async_context(client)
        except ButlersError:
            raise
        except Exception as error:  # the edge: whatever keeps a stranger's server from starting
            raise PeerFailed(self._why(error, await complaints.last())) from error

    async def _transport(self, stack: AsyncExitStack, complaints: Complaints) -> Any:
        from fastmcp.client.transports import StdioTransport, StreamableHttpTransport

        if self._server.kind is ServerKind.REMOTE:
            return StreamableHttpTransport(self._server.url or "")
        launching = prepared_server(self._runner, self._pack, self._server, self._values)
        launch = await asyncio.to_thread(stack.enter_context, launching)
        program, *arguments = launch.argv
        return StdioTransport(
            program,
            arguments,
            env=dict(launch.env),
            cwd=str(launch.cwd),
            keep_alive=False,
            log_file=complaints.told,
        )

    @property
    def _title(self) -> str:
        return f"{self._pack.skill.name}/{self._server.name}"

    def _fail(self, error: ButlersError) -> None:
        if not self._client.done():
            self._client.set_exception(error)
            self._client.exception()  # nobody may be waiting to be told

    def _why(self, error: Exception, complaint: str) -> str:
        said = f"; it said: {complaint}" if complaint else ""
        what = "it took too long" if isinstance(error, TimeoutError) else str(error) or repr(error)
        mask = SecretMask.of(secrets_of(self._pack.skill, self._values))
        return mask.text(f"the server {self._title} could not be started: {what}{said}")
