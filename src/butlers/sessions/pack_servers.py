"""MCP servers of packs: started with the first session that needs one, stopped after the last.

The butler is their client. A session sees their tools among its butler's as ``<pack>_<tool>``, with
underscores in place of hyphens.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

import structlog

from butlers.domain.errors import ButlersError, PeerFailed
from butlers.skills.scripts.answer import SecretMask
from butlers.skills.scripts.runner import ScriptRunner, secrets_of
from butlers.skills.scripts.servers import prepared_server
from butlers.skills.skill import Pack, PackMcpServer, ServerKind
from butlers.skills.skill_set import ButlerSkill

if TYPE_CHECKING:
    from fastmcp import Client

log = structlog.get_logger()

START_S = 30.0
CALL_S = 120.0
STDERR_END_S = 1.0
STDERR_KEPT = 64 * 1024  # bytes
MAX_TOOLS = 100  # of one server
MAX_DESCRIPTION = 1_000
_NAME = re.compile(r"[^A-Za-z0-9_]")  # some CLIs rename tools with other characters
Variables = Callable[[ButlerSkill], Awaitable[Mapping[str, str]]]


class StderrTail(asyncio.Protocol):
    """Keep the end of a server's stderr."""

    file: TextIO  # the server writes to it

    def __init__(self) -> None:
        self._data = bytearray()
        self._over = asyncio.Event()

    @classmethod
    async def open(cls, stack: AsyncExitStack) -> StderrTail:
        reading, writing = os.pipe()
        loop = asyncio.get_running_loop()
        transport, made = await loop.connect_read_pipe(cls, os.fdopen(reading, "rb", 0))
        stack.callback(transport.close)
        made.file = os.fdopen(writing, "w")
        stack.callback(made.file.close)
        return made

    async def last(self) -> str:
        """Return its last line, after the server has ended."""
        self.file.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(STDERR_END_S):
                await self._over.wait()
        lines = self._data.decode("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else ""

    def data_received(self, data: bytes) -> None:
        self._data += data
        del self._data[:-STDERR_KEPT]

    def connection_lost(self, _error: Exception | None) -> None:
        self._over.set()


class ServerConnection:
    """One run of a server. A single task owns the connection from start to end."""

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
            self._fail(PeerFailed(f"the server {self._title} was stopped before it was ready"))
            raise
        except ButlersError as error:
            self._fail(error)
        except Exception:  # the edge: a pack's server is code of others
            log.warning("pack server did not end cleanly", server=self._title, exc_info=True)

    async def _connect(self, stack: AsyncExitStack) -> Client[Any]:
        from fastmcp import Client

        stderr = await StderrTail.open(stack)
        try:
            async with asyncio.timeout(START_S):
                transport = await self._transport(stack, stderr)
                mode = "legacy" if self._server.kind is ServerKind.LOCAL else "auto"
                client = Client(transport, timeout=CALL_S, init_timeout=START_S, mode=mode)
                return await stack.enter_async_context(client)
        except ButlersError:
            raise
        except Exception as error:  # the edge: a pack's server is code of others
            raise PeerFailed(self._why(error, await stderr.last())) from error

    async def _transport(self, stack: AsyncExitStack, stderr: StderrTail) -> Any:
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
            log_file=stderr.file,
        )

    @property
    def _title(self) -> str:
        return f"{self._pack.skill.name}/{self._server.name}"

    def _fail(self, error: ButlersError) -> None:
        if not self._client.done():
            self._client.set_exception(error)
            self._client.exception()  # marks it as retrieved: no caller may be waiting

    def _why(self, error: Exception, stderr: str) -> str:
        last = f"; its last line on stderr: {stderr}" if stderr else ""
        what = "it took too long" if isinstance(error, TimeoutError) else str(error) or repr(error)
        mask = SecretMask.of(secrets_of(self._pack.skill, self._values))
        return mask.text(f"the server {self._title} could not be started: {what}{last}")


@dataclass(frozen=True, slots=True)
class PackTool:
    """A tool of a server; ``name`` is its name at the butler."""

    name: str
    inner: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PackToolResult:
    """Answer of a server, with the pack's secrets masked."""

    content: list[dict[str, Any]]
    structured: dict[str, Any] | None


class PackServer:
    def __init__(
        self,
        entry: ButlerSkill,
        server: PackMcpServer,
        runner: ScriptRunner,
        variables: Variables,
    ) -> None:
        self.entry = entry
        self.server = server
        self.tools: tuple[PackTool, ...] = ()
        self.error: str | None = None  # why its tools could not be listed
        self._runner = runner
        self._variables = variables
        self._users = 0
        self._lock = asyncio.Lock()
        self._running: ServerConnection | None = None
        self._ending: set[asyncio.Task[None]] = set()

    @property
    def pack(self) -> Pack:
        return self.entry.pack

    @property
    def is_running(self) -> bool:
        return self._running is not None and self._running.alive

    async def discover(self) -> None:
        """List its tools; if that fails, it has none, and ``error`` says why."""
        try:
            async with self.used():
                listed = await (await self._ready()).list_tools()
        except Exception as error:  # the edge: a pack's server is code of others
            self.error = error.message if isinstance(error, ButlersError) else str(error)
            unexpected = not isinstance(error, ButlersError)
            log.error(
                "pack server failed", server=self._title, error=self.error, exc_info=unexpected
            )
            return
        self.tools = tuple(
            PackTool(
                _NAME.sub("_", f"{self.pack.skill.name}_{tool.name}"),
                tool.name,
                (tool.description or "")[:MAX_DESCRIPTION],
                tool.input_schema,
            )
            for tool in listed[:MAX_TOOLS]
        )

    @asynccontextmanager
    async def used(self) -> AsyncIterator[None]:
        """Let the server run during the block; it ends with the last user."""
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            if self._users == 0:
                self._stop()

    async def close(self) -> None:
        """Stop it and wait until it is gone."""
        self._stop()
        while self._ending:
            await asyncio.wait(self._ending)

    async def start(self) -> None:
        """Start it for a session; a failure is reported by the next call."""
        with suppress(ButlersError):
            await self._ready()

    async def call(self, tool: str, arguments: dict[str, Any]) -> PackToolResult:
        """Call a tool. Raise SkillChanged if the pack has changed, PeerFailed if the server fails."""
        await asyncio.to_thread(self.entry.verify)
        async with self.used():
            client = await self._ready()
            mask = SecretMask.of(secrets_of(self.pack.skill, await self._variables(self.entry)))
            try:
                result = await client.call_tool_mcp(tool, arguments, timeout=CALL_S)
            except Exception as error:  # the edge: a pack's server is code of others
                if not _is_answer(error):
                    self._stop()  # the next call starts another
                raise PeerFailed(mask.text(f"{self._title}.{tool}: {error}")) from error
        content = [block.model_dump(mode="json", by_alias=True) for block in result.content]
        if result.is_error:
            texts = [str(block.get("text", "")) for block in content]
            raise PeerFailed(mask.text(f"{self._title}.{tool}: {' '.join(texts) or 'it failed'}"))
        return PackToolResult(mask.data(content), mask.data(result.structured_content))

    @property
    def _title(self) -> str:
        return f"{self.pack.skill.name}/{self.server.name}"

    async def _ready(self) -> Client[Any]:
        async with self._lock:
            if self._running is None or not self._running.alive:
                self._stop()
                variables = await self._variables(self.entry)
                self._running = ServerConnection(self.pack, self.server, self._runner, variables)
            return await self._running.client()

    def _stop(self) -> None:
        """Stop it in a task: its users do not wait for its end."""
        running, self._running = self._running, None
        if running is not None:
            ending = asyncio.create_task(running.stop())
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)


def _is_answer(error: Exception) -> bool:
    """Return whether the server answered with an error; otherwise the connection is lost."""
    from mcp import MCPError
    from mcp_types import CONNECTION_CLOSED

    return isinstance(error, MCPError) and error.error.code != CONNECTION_CLOSED
