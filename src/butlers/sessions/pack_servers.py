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
from butlers.skills.scripts.runner import Pack, ScriptRunner, secrets_of
from butlers.skills.scripts.servers import prepared_server
from butlers.skills.skill import PackMcpServer, ServerKind
from butlers.skills.skill_set import ButlerSkill

if TYPE_CHECKING:
    from fastmcp import Client
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


MAX_TOOLS = 100  # of one server
LONGEST_DESCRIPTION = 1_000
_NAME = re.compile(r"[^A-Za-z0-9_]")  # some CLIs rename what has other letters in it

Variables = Callable[[ButlerSkill], Awaitable[Mapping[str, str]]]


@dataclass(frozen=True, slots=True)
class PackTool:
    """A tool as its server tells it; ``name`` is what the butler calls it."""

    name: str
    inner: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Forwarded:
    """What a server answered, without the pack's secrets."""

    content: list[dict[str, Any]]
    structured: dict[str, Any] | None


class PackServer:
    def __init__(
        self,
        shelved: ButlerSkill,
        server: PackMcpServer,
        runner: ScriptRunner,
        variables: Variables,
    ) -> None:
        self.shelved = shelved
        self.server = server
        self.tools: tuple[PackTool, ...] = ()
        self.error: str | None = None  # why its tools could not be listed
        self._runner = runner
        self._variables = variables
        self._users = 0
        self._turn = asyncio.Lock()
        self._running: ServerRun | None = None
        self._ending: set[asyncio.Task[None]] = set()

    @property
    def pack(self) -> Pack:
        return self.shelved.pack

    @property
    def is_running(self) -> bool:
        return self._running is not None and self._running.alive

    async def discover(self) -> None:
        """Learn its tools; a server that can not be asked has none, and says why."""
        try:
            async with self.used():
                listed = await (await self._ready()).list_tools()
        except Exception as error:  # the edge: a pack's server is anybody's code
            self.error = error.message if isinstance(error, ButlersError) else str(error)
            log.error("pack server failed", server=self._title, error=self.error, exc_info=True)
            return
        self.tools = tuple(
            PackTool(
                _NAME.sub("_", f"{self.pack.skill.name}_{tool.name}"),
                tool.name,
                (tool.description or "")[:LONGEST_DESCRIPTION],
                tool.input_schema,
            )
            for tool in listed[:MAX_TOOLS]
        )

    @asynccontextmanager
    async def used(self) -> AsyncIterator[None]:
        """While somebody is in such a block the server may run; with the last one it ends."""
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            if self._users == 0:
                self._let_go()

    async def close(self) -> None:
        """Until nothing of it runs any more."""
        self._let_go()
        while self._ending:
            await asyncio.wait(self._ending)

    async def start(self) -> None:
        """Begin it for a session; a failure is told by the call that finds out."""
        with suppress(ButlersError):
            await self._ready()

    async def call(self, tool: str, arguments: dict[str, Any]) -> Forwarded:
        """SkillChanged if a byte of the pack is not as registered; PeerFailed if the server fails."""
        await asyncio.to_thread(self.shelved.verify)
        async with self.used():
            client = await self._ready()
            mask = SecretMask.of(secrets_of(self.pack.skill, await self._variables(self.shelved)))
            try:
                result = await client.call_tool_mcp(tool, arguments, timeout=CALL_S)
            except Exception as error:  # the edge: a pack's server is anybody's code
                if not _is_an_answer(error):
                    self._let_go()  # the next call starts another
                raise PeerFailed(mask.text(f"{self._title}.{tool}: {error}")) from error
        content = [block.model_dump(mode="json", by_alias=True) for block in result.content]
        if result.is_error:
            texts = [str(block.get("text", "")) for block in content]
            raise PeerFailed(mask.text(f"{self._title}.{tool}: {' '.join(texts) or 'it failed'}"))
        return Forwarded(mask.data(content), mask.data(result.structured_content))

    @property
    def _title(self) -> str:
        return f"{self.pack.skill.name}/{self.server.name}"

    async def _ready(self) -> Client[Any]:
        async with self._turn:
            if self._running is None or not self._running.alive:
                self._let_go()
                variables = await self._variables(self.shelved)
                self._running = ServerRun(self.pack, self.server, self._runner, variables)
            return await self._running.client()

    def _let_go(self) -> None:
        """It may take its time to end; whoever used it does not wait for that."""
        running, self._running = self._running, None
        if running is not None:
            ending = asyncio.create_task(running.stop())
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)


def _is_an_answer(error: Exception) -> bool:
    """Whether the server itself said no; else it is not there any more."""
    from mcp import MCPError
    from mcp_types import CONNECTION_CLOSED

    return isinstance(error, MCPError) and error.error.code != CONNECTION_CLOSED
