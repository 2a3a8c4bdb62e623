"""State of one evaluation: offered tools, calls made, opened sections."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import structlog

from butlers.domain.errors import ButlersError, VisibilityExpansionRequired
from butlers.prompt import Prompt, RenderedPrompt, Session, Tool, ToolContext, ToolInvoked
from butlers.prompt.prompt import OPEN_SECTIONS_TOOL, expand

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """Answer to a tool call; ``brings_tools`` if new tools became available."""

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
    done: list[str] = field(default_factory=list)  # calls so far, told to a new run
    rendered: RenderedPrompt = field(init=False)
    _calling: set[asyncio.Future[ToolAnswer]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.rendered = self._render()

    def all_tools(self) -> tuple[Tool[Any, Any], ...]:
        """Return all tools of the prompt, open or not."""
        sections = self.prompt.template.all_sections()
        return (*(tool for section in sections for tool in section.tools), OPEN_SECTIONS_TOOL)

    def offered(self) -> frozenset[str]:
        return frozenset(tool.name for tool in self.rendered.tools)

    async def call(self, tool: Tool[Any, Any], arguments: Mapping[str, Any]) -> ToolAnswer:
        """Call a tool. A failure of the tool is an answer, not an exception."""
        if tool.name not in self.offered():
            return ToolAnswer(f"Unknown tool: {tool.name!r}", ok=False)
        # Shielded: a thread continues after its client disconnects, and the next run must know the result.
        calling = asyncio.ensure_future(self._call(tool, arguments))
        self._calling.add(calling)
        calling.add_done_callback(self._calling.discard)
        return await asyncio.shield(calling)

    async def wait_for_calls(self, patience_s: float) -> bool:
        """Wait for running calls, including ones started meanwhile; return False on timeout."""
        with suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                while self._calling:
                    await asyncio.wait(set(self._calling))
        return not self._calling

    def cancel_calls(self) -> None:
        """Cancel running calls. A thread continues, but its result is dropped."""
        for calling in self._calling:
            calling.cancel()

    async def _call(self, tool: Tool[Any, Any], arguments: Mapping[str, Any]) -> ToolAnswer:
        answer = await self._answer(tool, arguments)
        self.session.publish(
            ToolInvoked,
            self.prompt.template,
            tool=tool.name,
            success=answer.ok,
            message=answer.text,
        )
        if tool is not OPEN_SECTIONS_TOOL:
            shown = json.dumps(dict(arguments), ensure_ascii=False, default=str)
            text = json.dumps(answer.text, ensure_ascii=False)  # keep it on one line
            self.done.append(f"{tool.name}({shown}) -> {text}")
        return answer

    async def _answer(self, tool: Tool[Any, Any], arguments: Mapping[str, Any]) -> ToolAnswer:
        context = ToolContext(self.prompt, self.rendered, self.session, self.adapter, self.deadline)
        try:
            result = await tool.call(arguments, context)
            return ToolAnswer(result.text(), result.success)
        except VisibilityExpansionRequired as asked:
            return self._open(asked)
        except ButlersError as error:
            hint = f" (hint: {error.hint})" if error.hint else ""
            return ToolAnswer(f"{error.message}{hint}", ok=False)
        except Exception as error:  # handlers are user code
            log.exception("tool failed", tool=tool.name)
            return ToolAnswer(f"{tool.name} failed: {error}", ok=False)

    def _open(self, asked: VisibilityExpansionRequired) -> ToolAnswer:
        """Open the sections, render again, and return their full text."""
        before = self.offered()
        expand(self.prompt, self.session, self.rendered, asked)
        self.rendered = self._render()
        opened = [one for path in asked.section_keys if (one := self.rendered.find(path))]
        new = [tool.name for tool in self.rendered.tools if tool.name not in before]
        parts = [one.whole for one in opened]
        if new:
            parts.append(f"[Tools now available: {', '.join(new)}]")
        return ToolAnswer("\n\n".join(parts), brings_tools=bool(new))

    def _render(self) -> RenderedPrompt:
        return self.prompt.render(session=self.session, installed=self.installed)
