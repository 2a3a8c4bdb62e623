"""Files that came with messages: the store that keeps them by content hash, and the tool that reads them.

A reference is ``sha256:<hex>``: the same file is stored once, a reference cannot be guessed without the
file, and a damaged file is an error when it is read.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import re
from collections.abc import Collection, Iterable
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from butlers.config.files import make_private_folder, write_once
from butlers.domain.caller import EVERYONE
from butlers.domain.errors import InvalidArguments, InvalidMessage, NotFound
from butlers.tools.context import CallContext
from butlers.tools.declaration import Effect, tool

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


LARGEST = 25 * 2**20
_NAME = re.compile(r"[0-9a-f]{64}")
_REFERENCE = re.compile(rf"sha256:(?P<hex>{_NAME.pattern})")
_ASIDE = ".aside"


class BlobDamaged(NotFound):
    """A kept file is not what it was."""

    code = "blob_damaged"


class BlobStore:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, content: bytes) -> str:
        """Keep it, whole or not at all; the same content again is the same file, young again."""
        if len(content) > LARGEST:
            raise InvalidMessage(
                f"the attachment has {len(content):,} bytes; at most {LARGEST:,} are kept",
                hint="send a smaller one",
            )
        digest = hashlib.sha256(content).hexdigest()
        path = self._path(digest)
        if not _make_young(path):
            make_private_folder(path.parent)
            write_once(path, content)
        return f"sha256:{digest}"

    def renew(self, references: Iterable[str]) -> None:
        """Somebody still needs them: they are young again."""
        for reference in references:
            if found := _REFERENCE.fullmatch(reference):
                _make_young(self._path(found["hex"]))

    def sweep(self, before: datetime, wanted: Collection[str]) -> int:
        """Remove the files that nobody wants and nobody kept since then; how many that were."""
        for aside in self._folder.glob(f"*/*{_ASIDE}"):  # of a sweep that was cut off
            aside.replace(aside.with_suffix(""))
        kept = (path for path in self._folder.glob("*/*") if _NAME.fullmatch(path.name))
        unwanted = [path for path in kept if f"sha256:{path.name}" not in wanted]
        return sum(_remove(path, before.timestamp()) for path in unwanted)

    def get(self, reference: str) -> bytes:
        found = _REFERENCE.fullmatch(reference)
        if found is None:
            raise InvalidArguments(
                f"{reference[:80]!r} is not a storage_ref", hint='it looks like "sha256:9f86d0…"'
            )
        try:
            content = self._path(found["hex"]).read_bytes()
        except FileNotFoundError:
            raise NotFound(
                f"there is no attachment {reference}", hint="was it sent to this fleet?"
            ) from None
        if hashlib.sha256(content).hexdigest() != found["hex"]:
            raise BlobDamaged(
                f"the attachment {reference} is damaged on disk", hint="restore it from a backup"
            )
        return content

    def _path(self, digest: str) -> Path:
        return self._folder / digest[:2] / digest


def _make_young(path: Path) -> bool:
    """False when it is not there."""
    try:
        os.utime(path)
    except FileNotFoundError:
        return False
    return True


def _remove(path: Path, before: float) -> bool:
    """Put aside first: whoever keeps the same content meanwhile has made it young, or writes it anew."""
    aside = path.with_suffix(_ASIDE)
    try:
        if path.stat().st_mtime >= before:
            return False
        path.replace(aside)
        if aside.stat().st_mtime >= before:
            aside.replace(path)
            return False
        aside.unlink()
    except FileNotFoundError:  # another sweep was faster
        return False
    return True


def media_type_of(content: bytes) -> str:
    """By what it begins with; a claim that travelled with a message is the sender's."""
    for magic, media_type in _MAGIC:
        if content.startswith(magic):
            return media_type
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "image/webp"
    return "text/plain" if is_text(content) else "application/octet-stream"


def is_text(content: bytes) -> bool:
    try:
        return "\0" not in content.decode("utf-8")
    except UnicodeDecodeError:
        return False


_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"%PDF-", "application/pdf"),
    (b"PK\x03\x04", "application/zip"),
)


TOOLS = (get_attachment,)
