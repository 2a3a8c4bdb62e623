"""The runtime without a model: a message that a reflex of a skill matches becomes one tool call and a reply.

It reaches its butler as any other session: over MCP, with a session token, through the guard and the call
journal. So a reflex that runs again after a crash does not repeat its call.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from butlers.domain.errors import ButlersError
from butlers.domain.message import RequestContext
from butlers.domain.session import Access, Outcome, SessionResult, ToolCall
from butlers.runtimes.base import McpServer, Terms
from butlers.wire.client import McpClient

NO_MODEL = "I have no reflex for that, and no language model is set up. Your message is kept."


class ReflexPlan(Protocol):
    """The tool call and reply of a reflex. Implemented by ``skills.reflexes.ReflexMatch``."""

    @property
    def tool(self) -> str | None: ...
    @property
    def arguments(self) -> dict[str, Any]: ...
    def reply(self, result: Any) -> str: ...


Match = Callable[[str, RequestContext | None], ReflexPlan | None]


class ReflexRuntime:
    name = "reflex"

    def __init__(self, match: Match) -> None:
        self._match = match

    def knows(self, prompt: str, request: RequestContext | None) -> bool:
        return self._match(prompt, request) is not None

    def own_bytes(self, access: Access) -> int:
        return 0  # there is no model

    def holds(self, access: Access) -> bool:
        return access is Access.SEALED  # it can only make its one tool call

    def withholds(self, access: Access, directory: Path) -> str | None:
        return None

    def warm(
        self,
        mcp_servers: Mapping[str, McpServer],
        env: Mapping[str, str],
        terms: Terms,
        butlers: Collection[str] = (),
    ) -> None:
        return None  # it starts no process

    async def invoke(
        self,
        prompt: str,
        system_prompt: str,
        mcp_servers: Mapping[str, McpServer],
        env: Mapping[str, str],
        terms: Terms,
    ) -> SessionResult:
        plan = self._match(prompt, terms.request)
        if plan is None:
            return SessionResult(Outcome.NO_MATCH, NO_MODEL)
        ((name, server),) = mcp_servers.items()
        async with McpClient(name, server.url, lambda: server.token) as butler:
            return await self._execute(butler, plan, answers=terms.request is not None)

    async def _execute(
        self, butler: McpClient, plan: ReflexPlan, *, answers: bool
    ) -> SessionResult:
        calls: list[ToolCall] = []
        try:
            result = None
            if plan.tool is not None:
                result = await _call(butler, plan.tool, plan.arguments, calls)
        except ButlersError as error:
            if error.retryable:
                raise  # nothing happened; the whole request is retried
            hint = f"\n{error.hint}" if error.hint else ""
            ended = SessionResult(
                Outcome.TOOL_FAILED, f"That did not work: {error}{hint}", error=str(error)
            )
        else:
            ended = SessionResult(Outcome.OK, plan.reply(result))
        if answers:
            ended = replace(ended, text=await _answer(butler, ended.text, calls))
        return replace(ended, tool_calls=tuple(calls))


async def _answer(butler: McpClient, text: str, calls: list[ToolCall]) -> str:
    """Send the reply. If it cannot be sent (empty, too long), say so instead."""
    try:
        await _notify(butler, text, calls)
    except ButlersError as error:
        if error.retryable:
            raise
        text = f"That is done, but its result cannot be shown here: {error}"
        await _notify(butler, text, calls)
    return text


async def _notify(butler: McpClient, text: str, calls: list[ToolCall]) -> None:
    await _call(butler, "notify", {"message": text, "intent": "reply"}, calls)


async def _call(
    butler: McpClient, tool: str, arguments: dict[str, Any], calls: list[ToolCall]
) -> Any:
    try:
        result = await butler.call(tool, arguments)
    except ButlersError:
        calls.append(ToolCall(tool, arguments, False))
        raise
    calls.append(ToolCall(tool, arguments, True, result))
    return result
