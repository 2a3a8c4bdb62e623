"""Reading the files that came with a message."""

from __future__ import annotations

import asyncio
import base64
from typing import Annotated, Any

from pydantic import Field

from butlers.domain.caller import EVERYONE
from butlers.domain.errors import InvalidArguments
from butlers.tools.base import Effect, tool
from butlers.tools.blobs import BlobStore, is_text, media_type_of
from butlers.tools.context import CallContext

PAGE = 32_768  # bytes: what a model is given at once, and a CLI passes on without cutting it


@tool(callers=EVERYONE, effect=Effect.LOOK, outside=True)
async def get_attachment(
    ctx: CallContext,
    storage_ref: str,
    offset: Annotated[int, Field(ge=0)] = 0,
    limit: Annotated[int, Field(ge=1, le=PAGE)] = PAGE,
) -> dict[str, Any]:
    """Read a file that came with a message, by its storage_ref: as text, or base64 where it is none.

    A long file comes in pages: ask again with offset = next_offset until that is null.
    """
    store = BlobStore(ctx.services.config.storage.blob_dir)
    content = await asyncio.to_thread(store.get, storage_ref)
    if offset > len(content):
        raise InvalidArguments(
            f"offset {offset:,} is behind the end", hint=f"the file has {len(content):,} bytes"
        )
    text = is_text(content)
    page = _page(content, offset, limit, text=text)
    end = offset + len(page)
    return {
        "storage_ref": storage_ref,
        "media_type": media_type_of(content),
        "size_bytes": len(content),
        "encoding": "text" if text else "base64",
        "content": page.decode() if text else base64.b64encode(page).decode("ascii"),
        "next_offset": end if end < len(content) else None,
    }


def _page(content: bytes, offset: int, limit: int, *, text: bool) -> bytes:
    """Of a text, whole characters: the page ends before one that it would cut in two."""
    page = content[offset : offset + limit]
    if not text or not page:
        return page
    start = page.decode("utf-8", "ignore").encode()
    if not start:
        raise InvalidArguments(
            "no whole character fits", hint="limit: 4 or more, and an offset that a page named"
        )
    if not page.startswith(start):
        raise InvalidArguments(
            f"offset {offset:,} is inside a character", hint="use the next_offset of a page"
        )
    return start


TOOLS = (get_attachment,)
