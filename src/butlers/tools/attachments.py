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

MAX_FILE_BYTES = 25 * 2**20
PAGE = 32_768  # bytes that a CLI passes on to its model without truncating them
_NAME = re.compile(r"[0-9a-f]{64}")
_REFERENCE = re.compile(rf"sha256:(?P<hex>{_NAME.pattern})")
_ASIDE = ".aside"
# Types that people send. Programs are rejected by their first bytes, whatever type they claim.
ACCEPTED_TYPES = (
    "image/", "audio/", "video/", "text/", "application/pdf", "application/json", "application/zip",
    "application/msword", "application/vnd.", "application/rtf", "message/rfc822",
)  # fmt: skip
_PROGRAMS = (b"MZ", b"\x7fELF", b"\xca\xfe\xba\xbe", b"\xcf\xfa\xed\xfe", b"#!")


def reason_to_refuse(media_type: str, content: bytes) -> str | None:
    """Return why a file is not accepted, or None if it is."""
    if len(content) > MAX_FILE_BYTES:
        return f"it has more than {MAX_FILE_BYTES:,} bytes"
    if not media_type.lower().startswith(ACCEPTED_TYPES):
        return f"files of the type {media_type[:80]!r} are not accepted"
    return "it is a program" if content.startswith(_PROGRAMS) else None


@tool(callers=EVERYONE, effect=Effect.LOOK, outside=True)
async def get_attachment(
    ctx: CallContext,
    storage_ref: str,
    offset: Annotated[int, Field(ge=0)] = 0,
    limit: Annotated[int, Field(ge=1, le=PAGE)] = PAGE,
) -> dict[str, Any]:
    """Read a file of a message by its storage_ref, as text or base64; further pages at next_offset."""
    store = BlobStore(ctx.services.config.storage.blob_dir)
    content = await asyncio.to_thread(store.get, storage_ref)
    if offset > len(content):
        raise InvalidArguments(
            f"offset {offset:,} is beyond the end of the file",
            hint=f"the file has {len(content):,} bytes",
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
    """Return a page of the file. A page of text ends before a character that it would cut."""
    page = content[offset : offset + limit]
    if not text or not page:
        return page
    start = page.decode("utf-8", "ignore").encode()
    if not start:
        raise InvalidArguments(
            "no whole character fits in the page",
            hint="use a limit of at least 4, and a next_offset",
        )
    if not page.startswith(start):
        raise InvalidArguments(
            f"offset {offset:,} is inside a character", hint="use the next_offset of a page"
        )
    return start


class BlobDamaged(NotFound):
    """The stored file does not match its hash."""

    code = "blob_damaged"


class BlobStore:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, content: bytes) -> str:
        """Store a file atomically and return its reference. Storing it again renews its age."""
        if len(content) > MAX_FILE_BYTES:
            raise InvalidMessage(
                f"the attachment has {len(content):,} bytes; at most {MAX_FILE_BYTES:,} are accepted",
                hint="send a smaller one",
            )
        digest = hashlib.sha256(content).hexdigest()
        path = self._path(digest)
        if not _renew(path):
            make_private_folder(path.parent)
            write_once(path, content)
        return f"sha256:{digest}"

    def renew(self, references: Iterable[str]) -> None:
        """Renew the age of files that are still needed."""
        for reference in references:
            if found := _REFERENCE.fullmatch(reference):
                _renew(self._path(found["hex"]))

    def sweep(self, before: datetime, wanted: Collection[str]) -> int:
        """Delete the files that are older and not in ``wanted``, and return their number."""
        for aside in self._folder.glob(f"*/*{_ASIDE}"):  # left by an interrupted sweep
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


def _renew(path: Path) -> bool:
    """Set the file's age to zero. Return False if it does not exist."""
    try:
        os.utime(path)
    except FileNotFoundError:
        return False
    return True


def _remove(path: Path, before: float) -> bool:
    """Rename the file first: if it is stored again meanwhile, it has been renewed or is written anew."""
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
    """Return the media type by the first bytes, because the sender may claim any type."""
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
