"""Every MCP client the project must serve, behind one face: list the tools, call one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol

import httpx2
from fastmcp import Client
from fastmcp.client.transports import SSETransport, StreamableHttpTransport
from mcp import ClientSession
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

from butlers.wire.client import McpClient


class ToolClient(Protocol):
    async def names(self) -> set[str]: ...
    async def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]: ...


class Connect(Protocol):
    def __call__(self, url: str, token: str) -> AbstractAsyncContextManager[ToolClient]: ...


class Ours:
    def __init__(self, client: McpClient) -> None:
        self._client = client

    async def names(self) -> set[str]:
        return {tool["name"] for tool in await self._client.list_tools()}

    async def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = await self._client.call(tool, arguments)
        return found


class Fast:
    def __init__(self, client: Client[Any]) -> None:
        self.client = client

    async def names(self) -> set[str]:
        return {tool.name for tool in await self.client.list_tools()}

    async def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        result = await self.client.call_tool(tool, arguments, raise_on_error=False)
        return result.structured_content or {}


class Plain:
    def __init__(self, session: ClientSession) -> None:
        self._session = session

    async def names(self) -> set[str]:
        return {tool.name for tool in (await self._session.list_tools()).tools}

    async def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        result = await self._session.call_tool(tool, arguments)
        return result.structured_content or {}


@asynccontextmanager
async def ours(url: str, token: str) -> AsyncIterator[ToolClient]:
    async with McpClient("tester", url, lambda: token, timeout_s=60) as client:
        yield Ours(client)


@asynccontextmanager
async def fastmcp_modern(url: str, token: str) -> AsyncIterator[ToolClient]:
    async with Client(StreamableHttpTransport(url, auth=token)) as client:
        yield Fast(client)


@asynccontextmanager
async def fastmcp_2025(url: str, token: str) -> AsyncIterator[ToolClient]:
    async with Client(StreamableHttpTransport(url, auth=token), mode="legacy") as client:
        yield Fast(client)


@asynccontextmanager
async def fastmcp_sse(url: str, token: str) -> AsyncIterator[ToolClient]:
    async with Client(SSETransport(url, auth=token)) as client:
        yield Fast(client)


@asynccontextmanager
async def mcp_streamable(url: str, token: str) -> AsyncIterator[ToolClient]:
    http = httpx2.AsyncClient(headers=_bearer(token), timeout=60, trust_env=False)
    async with (
        http,
        streamable_http_client(url, http_client=http) as (read, write),
        ClientSession(read, write) as session,
    ):
        await session.initialize()
        yield Plain(session)


@asynccontextmanager
async def mcp_sse(url: str, token: str) -> AsyncIterator[ToolClient]:
    async with (
        sse_client(url, headers=_bearer(token)) as (read, write),
        ClientSession(read, write) as session,
    ):
        await session.initialize()
        yield Plain(session)


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


ALL: tuple[Connect, ...] = (
    ours,
    fastmcp_modern,
    fastmcp_2025,
    fastmcp_sse,
    mcp_streamable,
    mcp_sse,
)

SHAKING_HANDS = ALL[1:]  # ours opens nothing before its first call


async def refusal(connect: Connect, url: str, token: str) -> str:
    """Return the error of a client whose connection is rejected."""
    try:
        async with connect(url, token):
            pass
    except Exception as error:  # noqa: BLE001  (each library wraps it in its own way)
        while isinstance(error, ExceptionGroup):
            error = error.exceptions[0]
        return str(error)
    raise AssertionError(f"{connect.__name__} was let in")
