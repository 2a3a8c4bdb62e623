"""Bridge: serve Python tools of this process to one session over MCP.

Hidden tools are neither listed nor callable. When a section is opened, the client is notified that its
tool list changed, and the answer waits until the client lists again: otherwise its next request to the
model would still carry the old list.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import mcp_types as mt
import uvicorn
from fastmcp import FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.server.auth import AccessToken, TokenVerifier
from fastmcp.server.dependencies import get_context
from fastmcp.server.middleware import CallNext, Middleware, MiddlewareContext
from fastmcp.tools.base import Tool, ToolResult
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import PrivateAttr

from butlers import __version__
from butlers.prompt.adapters.evaluation import Evaluation
from butlers.prompt.tool import Tool as PromptTool
from butlers.runtimes.base import McpServer

NAME = "tools"
PATH = "/mcp"
RELIST_S = 3.0  # clients list again within milliseconds, on a busy machine within one second
# Time to adopt the new list, which clients do not announce; proportional to the time to list.
SETTLE_S, SETTLE_TIMES, SETTLE_MOST_S = 0.2, 4, 2.0
LISTS_BY_ITSELF = "codex"  # before each request to the model; not awaited

OnRestart = Callable[[], None]


class Bridge(Middleware):
    """Middleware of the bridge. ``on_restart`` is called if only a new run will see new tools."""

    def __init__(
        self,
        evaluation: Evaluation,
        on_restart: OnRestart,
        *,
        always_restart: bool = False,
        relist_s: float = RELIST_S,
    ) -> None:
        self._evaluation, self._on_restart, self._always_restart = (
            evaluation,
            on_restart,
            always_restart,
        )
        self._relist_s = relist_s
        self.reached = False  # True once the client has listed tools
        self._restarting = False
        self._list_expected = False  # the client will list by itself
        self._token = secrets.token_urlsafe(32)
        self._listed = asyncio.Event()
        self._bus = InMemorySubscriptionBus()
        self._listen_handler = ListenHandler(self._bus)
        self._mcp = self._server()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[McpServer]:
        """Serve on a free loopback port; the token is required."""
        app = self._mcp.http_app(transport="http", path=PATH, host_origin_protection=True)
        with contextlib.closing(socket.socket()) as listener:
            listener.bind(("127.0.0.1", 0))
            port = listener.getsockname()[1]
            config = uvicorn.Config(
                app, log_config=None, access_log=False, ws="none", timeout_graceful_shutdown=2
            )
            server = _BridgeServer(config)
            serving = asyncio.create_task(server.serve(sockets=[listener]))
            try:
                await server.listening.wait()
                yield McpServer(f"http://127.0.0.1:{port}{PATH}", self._token)
            finally:
                self._listen_handler.close()
                server.should_exit = True
                await serving

    def _server(self) -> FastMCP:
        mcp: FastMCP = FastMCP(
            NAME, version=__version__, auth=_OneToken(self._token), dereference_schemas=True
        )
        mcp.add_middleware(self)
        tools = [_Bridged.of(tool, self._call) for tool in self._evaluation.all_tools()]
        for tool in tools:
            mcp.add_tool(tool)
        schemas = {tool.name: tool.parameters for tool in tools}
        # Otherwise the protocol library lists all tools before each call, as if the client did.
        mcp._mcp_server.get_tool_input_schema = schemas.get
        mcp._mcp_server.add_request_handler(
            "subscriptions/listen", mt.SubscriptionsListenRequestParams, self._listen
        )
        return mcp

    # -- requests of the client

    async def on_list_tools(
        self,
        context: MiddlewareContext[mt.ListToolsRequest],
        call_next: CallNext[mt.ListToolsRequest, Sequence[Tool]],
    ) -> Sequence[Tool]:
        offered = self._evaluation.offered()
        tools = [tool for tool in await call_next(context) if tool.name in offered]
        self.reached = True
        self._listed.set()
        return tools

    async def _listen(self, context: Any, params: Any) -> Any:
        return await self._listen_handler(context, params)

    async def _call(self, tool: PromptTool[Any, Any], arguments: dict[str, Any]) -> str:
        if self.list_pending and not self._restarting:
            self._request_restart()  # it asked the model without listing
        if self._restarting:
            raise ToolError("this run has ended; a new run follows")
        answer = await self._evaluation.call(tool, arguments)
        if not answer.ok:
            raise ToolError(answer.text)
        if answer.brings_tools:
            await self._announce()
        return answer.text

    async def _announce(self) -> None:
        if self._always_restart:
            self._request_restart()
            return
        context = get_context()
        clock = asyncio.get_running_loop().time
        announced = clock()
        self._listed.clear()
        if context.session.protocol_version in MODERN_PROTOCOL_VERSIONS:
            await self._bus.publish(ToolsListChanged())
        else:
            await context.send_notification(mt.ToolListChangedNotification())
        known = context.session.client_params
        if known and known.client_info.name.startswith(LISTS_BY_ITSELF):
            self._list_expected = True
            return
        try:
            async with asyncio.timeout(self._relist_s):
                await self._listed.wait()
        except TimeoutError:
            self._request_restart()
        else:
            took_s = clock() - announced
            await asyncio.sleep(min(max(SETTLE_S, SETTLE_TIMES * took_s), SETTLE_MOST_S))

    @property
    def list_pending(self) -> bool:
        """True if new tools appeared that a self-listing client has not listed."""
        return self._list_expected and not self._listed.is_set()

    def _request_restart(self) -> None:
        """Reject further calls in this run: the next run would not know of them."""
        self._restarting = True
        self._on_restart()


class _Bridged(Tool):
    _tool: PromptTool[Any, Any] = PrivateAttr()
    _answer: Any = PrivateAttr()

    @classmethod
    def of(cls, tool: PromptTool[Any, Any], answer: Any) -> _Bridged:
        made = cls(name=tool.name, description=tool.description, parameters=dict(tool.schema))
        made._tool, made._answer = tool, answer
        return made

    async def run(self, arguments: dict[str, Any]) -> ToolResult:
        return ToolResult(content=await self._answer(self._tool, arguments))


class _OneToken(TokenVerifier):
    def __init__(self, token: str) -> None:
        super().__init__()
        self._token = token

    async def verify_token(self, token: str) -> AccessToken | None:
        if not secrets.compare_digest(token.encode(), self._token.encode()):
            return None
        return AccessToken(token=token, client_id=NAME, subject=NAME, scopes=[])


class _BridgeServer(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().startup(sockets)
        finally:
            self.listening.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # the evaluating process handles signals
