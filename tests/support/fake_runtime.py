"""A runtime for tests: thinks what it is told to, over the real road (token, guard, tools, journal)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from butlers.domain.session import Access, Outcome, SessionResult, Usage
from butlers.runtimes.base import McpServer, Terms
from butlers.wire.client import McpClient

Thought = Callable[[McpClient], Awaitable[str]]


@dataclass(frozen=True)
class RuntimeCall:
    prompt: str
    system_prompt: str
    server: McpServer
    env: Mapping[str, str]
    terms: Terms


async def nothing(butler: McpClient) -> str:
    await butler.list_tools()
    return "thought"


async def unreached(_butler: McpClient) -> str:
    return "I thought about it, without any tool."


async def for_ever(_butler: McpClient) -> str:
    await asyncio.Event().wait()
    return "never"


@dataclass
class FakeRuntime:
    think: Thought = nothing
    usage: Usage = field(default_factory=lambda: Usage(1_000, 100, 200))
    model: str | None = "claude-sonnet-4-5"
    levels: frozenset[Access] = frozenset(Access)
    outcome: Outcome = Outcome.OK
    asked: list[RuntimeCall] = field(default_factory=list)
    name: str = "claude-code"
    withheld: str | None = None

    def own_bytes(self, access: Access) -> int:
        return 0

    def holds(self, access: Access) -> bool:
        return access in self.levels

    def withholds(self, access: Access, directory: Path) -> str | None:
        return self.withheld

    def warm(
        self,
        mcp_servers: Mapping[str, McpServer],
        env: Mapping[str, str],
        terms: Terms,
        butlers: Collection[str] = (),
    ) -> None:
        return None

    async def invoke(
        self,
        prompt: str,
        system_prompt: str,
        mcp_servers: Mapping[str, McpServer],
        env: Mapping[str, str],
        terms: Terms,
    ) -> SessionResult:
        ((name, server),) = mcp_servers.items()
        self.asked.append(RuntimeCall(prompt, system_prompt, server, env, terms))
        async with McpClient(name, server.url, lambda: server.token) as butler:
            text = await self.think(butler)
        error = None if self.outcome is Outcome.OK else f"it ended as {self.outcome}"
        return SessionResult(self.outcome, text, usage=self.usage, model=self.model, error=error)
