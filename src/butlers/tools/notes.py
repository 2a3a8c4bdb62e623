"""The tool that writes a butler's notes: approving notes of a tainted session calls it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from butlers.config.files import replace_file
from butlers.domain.caller import OWNER_ONLY
from butlers.sessions.notes import MAX_NOTES, READABLE
from butlers.sessions.workspace import NOTES
from butlers.tools.context import CallContext
from butlers.tools.declaration import tool


async def _write_before(ctx: CallContext, result: dict[str, Any]) -> None:
    before = result.get("before")
    if before is None:
        await asyncio.to_thread(_file(ctx).unlink, missing_ok=True)
    else:
        await asyncio.to_thread(replace_file, _file(ctx), before.encode(), READABLE)


@tool(callers=OWNER_ONLY, reverse=_write_before)
async def notes_write(
    ctx: CallContext, text: Annotated[str, Field(max_length=MAX_NOTES)]
) -> dict[str, Any]:
    """Replace the butler's notes, which are part of the prompt of its sessions."""
    file = _file(ctx)
    before = await asyncio.to_thread(_read, file)
    await asyncio.to_thread(replace_file, file, text.encode(), READABLE)
    return {"file": file.name, "before": before}


def _file(ctx: CallContext) -> Path:
    return ctx.services.config.directory / NOTES


def _read(file: Path) -> str | None:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None


TOOLS = (notes_write,)
