"""The MCP servers of packs: started with the first session that needs one, ended after the last.

The butler speaks to them; a session sees their tools among its butler's, as ``<pack>_<tool>``,
with underscores in the place of hyphens.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import structlog

from butlers.domain.errors import ButlersError, PeerFailed
from butlers.sessions.server_run import CALL_S, ServerRun
from butlers.skills.scripts.answer import SecretMask
from butlers.skills.scripts.runner import Pack, ScriptRunner, secrets_of
from butlers.skills.skill import PackMcpServer
from butlers.skills.skill_set import ButlerSkill

if TYPE_CHECKING:
    from fastmcp import Client

log = structlog.get_logger()

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
