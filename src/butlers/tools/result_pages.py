"""Long results of tool calls, in pages: a CLI cuts or drops a result that is too long for it.

The first page is the answer of the call; ``result_page`` returns the others while the session runs.
"""

from __future__ import annotations

import json
from typing import Annotated, Any

import mcp_types as mt
from fastmcp.tools.base import ToolResult
from pydantic import Field

from butlers.domain.caller import SESSIONS
from butlers.domain.errors import NotFound
from butlers.sessions.guard import LiveSession
from butlers.tools.context import CallContext
from butlers.tools.declaration import Effect, tool

LONGEST = 40_000  # characters of a result; sealed Claude Code loses what is longer than 50,000
PAGE = 20_000  # characters of a page, of which escaping may make twice as many
MOST_KEPT = 20_000_000  # characters of all long results of one session
TOO_LONG = "The result is too long: ask for less of it."


def in_pages(session: LiveSession, result: ToolResult) -> ToolResult:
    """Return the first page of a result that is too long for a session, and keep the rest."""
    text = _text_of(result) if session.reads_pages and not result.is_error else None
    if text is None or len(text) <= LONGEST:
        return result
    if sum(map(len, session.pages.values())) + len(text) > MOST_KEPT:
        return ToolResult(content=[mt.TextContent(type="text", text=TOO_LONG)], is_error=True)
    name = f"r{len(session.pages) + 1}"
    session.pages[name] = text
    return ToolResult(structured_content=_page(name, text, 1))


def _text_of(result: ToolResult) -> str | None:
    """Return a result as text; None for pictures and other content that cannot be cut."""
    if result.structured_content is not None:
        return json.dumps(result.structured_content, ensure_ascii=False, default=str)
    texts = [part.text for part in result.content if isinstance(part, mt.TextContent)]
    return "\n".join(texts) if len(texts) == len(result.content) else None


def _page(name: str, text: str, page: int) -> dict[str, Any]:
    pages = -(-len(text) // PAGE)
    found: dict[str, Any] = {
        "page": page,
        "pages": pages,
        "text": text[(page - 1) * PAGE : page * PAGE],
    }
    if page < pages:
        found["next"] = f'result_page(result="{name}", page={page + 1})'
    return found


@tool(callers=SESSIONS, effect=Effect.LOOK)
async def result_page(
    ctx: CallContext, result: str, page: Annotated[int, Field(ge=1, le=10_000)]
) -> dict[str, Any]:
    """A further page of a long result."""
    text = ctx.pages.get(result)
    if text is None:
        raise NotFound(f"there is no result {result!r} in this session")
    if (page - 1) * PAGE >= len(text):
        raise NotFound(f"{result} has {-(-len(text) // PAGE)} pages")
    return _page(result, text, page)


TOOLS = (result_page,)
