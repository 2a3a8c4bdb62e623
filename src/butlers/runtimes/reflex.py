"""The runtime without a model: a message that a reflex of a skill matches becomes one tool call and a reply.

It runs in its butler's process and starts none. Its calls go through the same guard, journal and audit as
those of any other session, so a reflex that runs again after a crash does not repeat its call.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Protocol

from butlers.domain.errors import ButlersError
from butlers.domain.message import RequestContext
from butlers.domain.session import Outcome, SessionResult, ToolCall

NO_MODEL = "I have no reflex for that, and no language model is set up. Your message is kept."


class ReflexPlan(Protocol):
    """The tool call and reply of a reflex. Implemented by ``skills.reflexes.ReflexMatch``."""

    @property
    def tool(self) -> str | None: ...
    @property
    def arguments(self) -> dict[str, Any]: ...
    def reply(self, result: Any) -> str: ...


Match = Callable[[str, RequestContext | None], ReflexPlan | None]
# Calls a tool with these arguments as the session; raises the typed error of the tool.
CallTool = Callable[[str, dict[str, Any]], Awaitable[Any]]


class ReflexRuntime:
    name = "reflex"

    def __init__(self, match: Match) -> None:
        self._match = match

    def knows(self, prompt: str, request: RequestContext | None) -> bool:
        return self._match(prompt, request) is not None

    async def answer(
        self, prompt: str, request: RequestContext | None, call: CallTool
    ) -> SessionResult:
        """Make the tool call of the reflex that matches, and send its reply if a message asked for it."""
        plan = self._match(prompt, request)
        if plan is None:
            return SessionResult(Outcome.NO_MATCH, NO_MODEL)
        return await self._execute(call, plan, answers=request is not None)

    async def _execute(self, call: CallTool, plan: ReflexPlan, *, answers: bool) -> SessionResult:
        calls: list[ToolCall] = []
        try:
            result = None
            if plan.tool is not None:
                result = await _call(call, plan.tool, plan.arguments, calls)
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
            ended = replace(ended, text=await _answer(call, ended.text, calls))
        return replace(ended, tool_calls=tuple(calls))


async def _answer(call: CallTool, text: str, calls: list[ToolCall]) -> str:
    """Send the reply. If it cannot be sent (empty, too long), say so instead."""
    try:
        await _notify(call, text, calls)
    except ButlersError as error:
        if error.retryable:
            raise
        text = f"That is done, but its result cannot be shown here: {error}"
        await _notify(call, text, calls)
    return text


async def _notify(call: CallTool, text: str, calls: list[ToolCall]) -> None:
    await _call(call, "notify", {"message": text, "intent": "reply"}, calls)


async def _call(call: CallTool, tool: str, arguments: dict[str, Any], calls: list[ToolCall]) -> Any:
    try:
        result = await call(tool, arguments)
    except ButlersError:
        calls.append(ToolCall(tool, arguments, False))
        raise
    calls.append(ToolCall(tool, arguments, True, result))
    return result
