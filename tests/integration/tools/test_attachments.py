"""get_attachment: a file that came with a message is read in pages, whole, or refused by name."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from butlers.domain.errors import InvalidArguments, InvalidMessage, NotFound
from butlers.tools.attachments import MAX_FILE_BYTES, BlobDamaged, BlobStore, media_type_of
from support.in_process import InProcessButler
from support.properties import examples


@pytest.fixture
def blobs(tester: InProcessButler) -> BlobStore:
    return BlobStore(tester.butler.config.storage.blob_dir)


async def test_text_file_is_returned_as_text(tester: InProcessButler, blobs: BlobStore) -> None:
    reference = blobs.put("grüezi".encode())
    async with tester.session() as session:
        assert await session.call("get_attachment", {"storage_ref": reference}) == {
            "storage_ref": reference,
            "media_type": "text/plain",
            "size_bytes": 7,
            "encoding": "text",
            "content": "grüezi",
            "next_offset": None,
        }


async def test_long_text_is_paged_at_whole_characters(
    tester: InProcessButler, blobs: BlobStore
) -> None:
    text = "ä€😀x" * 9_000
    reference = blobs.put(text.encode())
    read, offset = "", 0
    async with tester.session() as session:
        while offset is not None:
            page = await session.call(
                "get_attachment", {"storage_ref": reference, "offset": offset, "limit": 32_001}
            )
            read, offset = read + page["content"], page["next_offset"]
    assert read == text


async def test_binary_file_is_returned_as_base64(tester: InProcessButler, blobs: BlobStore) -> None:
    image = b"\x89PNG\r\n\x1a\n" + os.urandom(100)
    async with tester.session() as session:
        page = await session.call("get_attachment", {"storage_ref": blobs.put(image)})
    assert (page["media_type"], page["encoding"]) == ("image/png", "base64")
    assert base64.b64decode(page["content"]) == image


@pytest.mark.parametrize(
    "reference",
    ["", "sha256:", "../../etc/passwd", "sha256:" + "g" * 64, "md5:" + "0" * 64, "/etc/passwd"],
)
async def test_reference_cannot_be_a_path(tester: InProcessButler, reference: str) -> None:
    async with tester.session() as session:
        with pytest.raises(InvalidArguments, match="not a storage_ref"):
            await session.call("get_attachment", {"storage_ref": reference})


async def test_unknown_reference_is_not_found(tester: InProcessButler) -> None:
    async with tester.session() as session:
        with pytest.raises(NotFound):
            await session.call("get_attachment", {"storage_ref": "sha256:" + "0" * 64})


async def test_invalid_offset_is_explained(tester: InProcessButler, blobs: BlobStore) -> None:
    reference = blobs.put("äöü".encode())
    async with tester.session() as session:
        for offset, limit in ((7, 10), (1, 10), (0, 1)):
            with pytest.raises(InvalidArguments):
                await session.call(
                    "get_attachment",
                    {"storage_ref": reference, "offset": offset, "limit": limit},
                )


async def test_damaged_file_is_an_error(tester: InProcessButler, blobs: BlobStore) -> None:
    reference = blobs.put(b"as it was")
    (kept,) = (path for path in tester.butler.config.storage.blob_dir.rglob("*") if path.is_file())
    kept.write_bytes(b"as it is not")
    async with tester.session() as session:
        with pytest.raises(BlobDamaged):
            await session.call("get_attachment", {"storage_ref": reference})


def test_too_large_file_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(InvalidMessage, match="at most"):
        BlobStore(tmp_path).put(b"x" * (MAX_FILE_BYTES + 1))
    assert not list(tmp_path.iterdir())


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(50))
@given(st.binary(max_size=2_000))
def test_stored_file_is_returned_unchanged(tmp_path: Path, content: bytes) -> None:
    blobs = BlobStore(tmp_path)
    reference = blobs.put(content)
    assert blobs.put(content) == reference
    assert blobs.get(reference) == content
    assert media_type_of(content)
