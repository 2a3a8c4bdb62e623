"""The evaluation of one evaluation: what the model may call now, what it called, and what it has opened."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any

import structlog

from butlers.domain.errors import ButlersError, VisibilityExpansionRequired
from butlers.domain.tasks import in_thread
from butlers.prompt import Prompt, RenderedPrompt, Session, Tool, ToolContext, ToolInvoked
from butlers.prompt import ToolResult as PromptToolResult
from butlers.prompt.prompt import OPEN_SECTIONS_TOOL, expand

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """What a call is answered, and whether it brought tools that were not there before."""

    text: str
    ok: bool = True
    brings_tools: bool = False


@dataclass(slots=True)
class Evaluation:
    prompt: Prompt[Any]
    session: Session
    installed: bool
    adapter: Any = None
    deadline: datetime | None = None
    done: list[str] = field(default_factory=list)  # the calls so far, for a run that begins anew
    rendered: RenderedPrompt = field(init=False)
    _calling: set[asyncio.Future[ToolAnswer]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.rendered = self._render()

    def all_tools(self) -> tuple[Tool[Any, Any], ...]:
        """All that could ever be called, open or not."""
        sections = self.prompt.template.all_sections()
        return (*(tool for section in sections for tool in section.tools), OPEN_SECTIONS_TOOL)

    def offered(self) -> frozenset[str]:
        return frozenset(tool.name for tool in self.rendered.tools)

    async def call(self, tool: Tool[Any, Any], arguments: Mapping[str, Any]) -> ToolAnswer:
        """Never raises for what a tool does."""
        if tool.name not in self.offered():
            return ToolAnswer(f"Unknown tool: {tool.name!r}", ok=False)
        # To the end, also when whoever asked is gone: a thread goes on, and the next run must know of it.
        calling = asyncio.ensure_future(self._call(tool, arguments))
        self._calling.add(calling)
        calling.add_done_callback(self._calling.discard)
        return await asyncio.shield(calling)

    async def wait_for_calls(self, patience_s: float) -> bool:
        """Whether all calls have ended in that time, those that were only begun meanwhile included."""
        with suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                while self._calling:
                    await asyncio.wait(set(self._calling))
        return not self._calling

    def cancel_calls(self) -> None:
        """Nobody waits for what is still being called: it is cancelled, and a thread goes on unheard."""
        for calling in self._calling:
            calling.cancel()

    async def _call(self, tool: Tool[Any, Any], arguments: Mapping[str, Any]) -> ToolAnswer:
        answer = await self._answer(tool, arguments)
        template = self.prompt.template
        self.session.bus.publish(
            ToolInvoked(
                template.ns,
                template.key,
                tool.name,
                answer.ok,
                answer.text,
                self.session.session_id,
                self.session.now(),
            )
        )
        if tool is not OPEN_SECTIONS_TOOL:
            told = json.dumps(dict(arguments), ensure_ascii=False, default=str)
            text = json.dumps(answer.text, ensure_ascii=False)  # on one line, and no heading
            self.done.append(f"{tool.name}({told}) -> {text}")
        return answer

    async def _answer(self, tool: Tool[Any, Any], arguments: Mapping[str, Any]) -> ToolAnswer:
        context = ToolContext(self.prompt, self.rendered, self.session, self.adapter, self.deadline)
        try:
            answer = await self._run(tool, arguments, context)
        except VisibilityExpansionRequired as asked:
            return self._open(asked)
        except ButlersError as error:
            hint = f" (hint: {error.hint})" if error.hint else ""
            return ToolAnswer(f"{error.message}{hint}", ok=False)
        except Exception as error:  # a handler is somebody else's code
            log.exception("a tool failed", tool=tool.name)
            return ToolAnswer(f"{tool.name} failed: {error}", ok=False)
        return answer

    async def _run(
        self, tool: Tool[Any, Any], arguments: Mapping[str, Any], context: ToolContext
    ) -> ToolAnswer:
        params = tool.parse(arguments)
        handle = partial(tool.handler, params, context=context)
        if inspect.iscoroutinefunction(tool.handler):
            found = handle()
        else:  # it may take its time, and the model's server must not wait for it
            found = await in_thread(handle)
        result = await found if inspect.isawaitable(found) else found
        if not isinstance(result, PromptToolResult):
            raise TypeError(f"its handler gave a {type(result).__name__}, and no ToolResult")
        return ToolAnswer(result.text(), result.success)

    def _open(self, asked: VisibilityExpansionRequired) -> ToolAnswer:
        """Remember it, render again, and show what was opened as it is now."""
        before = self.offered()
        expand(self.prompt, self.session, self.rendered, asked)
        self.rendered = self._render()
        opened = [one for path in asked.section_keys if (one := self.rendered.find(path))]
        new = [tool.name for tool in self.rendered.tools if tool.name not in before]
        parts = [one.whole for one in opened]
        if new:
            parts.append(f"[Tools that can be called now: {', '.join(new)}]")
        return ToolAnswer("\n\n".join(parts), brings_tools=bool(new))

    def _render(self) -> RenderedPrompt:
        return self.prompt.render(session=self.session, installed=self.installed)
