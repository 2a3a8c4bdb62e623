"""Files that come with a message: looked at, kept by their content, and from then on a reference."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Sequence

from butlers.domain.errors import InvalidMessage, MessageTooLarge
from butlers.domain.message import Attachment
from butlers.tools.blobs import LARGEST, BlobStore, media_type_of

MOST = 10
# What a person sends. A program is none of it, whatever it calls itself.
TYPES = ("image/", "audio/", "video/", "text/", "application/pdf", "application/json",
         "application/zip", "application/msword", "application/vnd.", "application/rtf",
         "message/rfc822")  # fmt: skip
_PROGRAMS = (b"MZ", b"\x7fELF", b"\xca\xfe\xba\xbe", b"\xcf\xfa\xed\xfe", b"#!")


async def keep_all(files: Sequence[Attachment], blobs: BlobStore) -> tuple[Attachment, ...]:
    """References to what is kept. One that may not be taken refuses the whole message."""
    if len(files) > MOST:
        raise InvalidMessage(
            f"the message has {len(files)} attachments; at most {MOST} are taken",
            hint="send the rest in another message",
        )
    return tuple([await asyncio.to_thread(_keep, file, blobs) for file in files])


def _keep(file: Attachment, blobs: BlobStore) -> Attachment:
    if not file.media_type.lower().startswith(TYPES):
        raise InvalidMessage(
            f"an attachment of the type {file.media_type[:80]!r} is not taken",
            hint="images, sound, video, text, PDF, office documents and archives are",
        )
    content = _content(file, blobs)
    if content.startswith(_PROGRAMS):
        raise InvalidMessage(
            f"the attachment {file.filename or ''!r} is a program", hint="programs are not taken"
        )
    found = media_type_of(content)
    known = file.media_type if found in ("text/plain", "application/octet-stream") else found
    return Attachment(known, file.filename, len(content), blobs.put(content))


def _content(file: Attachment, blobs: BlobStore) -> bytes:
    if (file.content is None) == (file.storage_ref is None):
        raise InvalidMessage(
            "an attachment has either content or storage_ref", hint="content is base64"
        )
    if file.storage_ref is not None:
        return blobs.get(file.storage_ref)
    assert file.content is not None
    if len(file.content) > LARGEST * 4 // 3 + 4:
        raise MessageTooLarge(
            f"an attachment has more than {LARGEST:,} bytes", hint="send a smaller one"
        )
    try:
        return base64.b64decode(file.content, validate=True)
    except binascii.Error as error:
        raise InvalidMessage(
            f"an attachment's content is not base64: {error}", hint="encode it as base64"
        ) from None
