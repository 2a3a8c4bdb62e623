"""Unpack untrusted archives: bounded, inside one folder, and regular files only.

Sizes are counted while unpacking; the sizes that an archive declares are not trusted.
"""

from __future__ import annotations

import gzip
import io
import lzma
import os
import stat
import tarfile
import unicodedata
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO

from butlers.domain.errors import SkillArchiveRefused, SkillPathRefused, SkillTooLarge
from butlers.skills.names import inner_path, script_language
from butlers.skills.tree import IGNORED_NAMES, MAX_BYTES, MAX_DEPTH, MAX_FILES

MAX_ARCHIVE = 10 * 1024 * 1024
MAX_RATIO = 100
# The ratio is checked above this size: small plain text can compress a hundredfold.
_RATIO_COUNTS_FROM = 1024 * 1024
_MAX_DIRECTORY = 1024 * 1024
_CHUNK = 64 * 1024
_BROKEN = (zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError)
_HINT = "unpack it yourself and inspect the files before you install the folder"


@dataclass(frozen=True, slots=True)
class _Member:
    path: str
    executable: bool
    content: IO[bytes]


def unpack(archive: Path, target: Path) -> Path:
    """Unpack a .zip or .tar.gz below ``target``. Return the folder that holds the skill."""
    size = _size(archive)
    with archive.open("rb") as stream:
        kind = stream.read(4)
        stream.seek(0)
        unpacking = _Unpacking(target, size)
        try:
            if kind.startswith(b"\x1f\x8b"):
                unpacking.write_all(_tar_members(stream))
            elif kind.startswith(b"PK"):
                unpacking.write_all(_zip_members(stream))
            else:
                raise SkillArchiveRefused(
                    f"{archive} is neither .zip nor .tar.gz", hint="or install a folder"
                )
        except (*_BROKEN, EOFError, OSError) as error:
            raise SkillArchiveRefused(f"{archive} is damaged: {error}") from error
        except (NotImplementedError, RuntimeError, ValueError) as error:  # other errors of zipfile
            raise SkillArchiveRefused(f"{archive} cannot be unpacked: {error}") from error
    return _skill_folder(target)


def _size(archive: Path) -> int:
    try:
        size = archive.stat().st_size
    except OSError as error:
        raise SkillArchiveRefused(f"{archive}: {error.strerror or error}") from error
    if not archive.is_file():
        raise SkillArchiveRefused(f"{archive} is not a file")
    if size > MAX_ARCHIVE:
        raise SkillTooLarge(
            f"{archive} is larger than {MAX_ARCHIVE // (1024 * 1024)} MB", hint=_HINT
        )
    return size


@dataclass(slots=True)
class _Unpacking:
    target: Path
    archive_size: int
    total: int = 0
    seen: set[str] = field(default_factory=set)

    def write_all(self, members: Iterator[_Member]) -> None:
        for member in members:
            path = self._checked_path(member.path)
            if path is not None:
                self._write(path, member)

    def _checked_path(self, written: str) -> str | None:
        path = inner_path(written)
        if path is None:
            raise SkillPathRefused(
                f"the archive has a file with the path {written[:80]!r}, which is not allowed",
                hint=_HINT,
            )
        parts = PurePosixPath(path).parts
        # On a file system that ignores case or Unicode form, one file would replace the other.
        same = unicodedata.normalize("NFC", unicodedata.normalize("NFD", path).casefold())
        if same in self.seen:
            raise SkillPathRefused(f"the archive has {path!r} twice", hint=_HINT)
        self.seen.add(same)
        if len(self.seen) > MAX_FILES or len(parts) > MAX_DEPTH:
            raise SkillTooLarge(
                f"the archive has more than {MAX_FILES} files, or folders more than {MAX_DEPTH} deep"
            )
        return None if not IGNORED_NAMES.isdisjoint(parts) else path

    def _write(self, path: str, member: _Member) -> None:
        file = self.target / path
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("xb") as writing:
            while chunk := member.content.read(_CHUNK):
                self._count(len(chunk))
                writing.write(chunk)
            os.fchmod(writing.fileno(), 0o755 if member.executable else 0o644)

    def _count(self, size: int) -> None:
        self.total += size
        if self.total > MAX_BYTES:
            raise SkillTooLarge(
                f"the archive unpacks to more than {MAX_BYTES // (1024 * 1024)} MB", hint=_HINT
            )
        if self.total > max(_RATIO_COUNTS_FROM, self.archive_size * MAX_RATIO):
            raise SkillTooLarge(
                f"the archive unpacks to more than {MAX_RATIO} times its size", hint=_HINT
            )


def _zip_members(stream: IO[bytes]) -> Iterator[_Member]:
    _check_directory(stream)
    with zipfile.ZipFile(stream) as opened:
        for info in opened.infolist():
            mode = info.external_attr >> 16
            if info.is_dir():
                _refuse_unless_inside(info.filename)
                continue
            if stat.S_IFMT(mode) not in (0, stat.S_IFREG):
                raise _not_a_file(info.filename)
            if info.flag_bits & 0x1:
                raise SkillArchiveRefused("the archive is encrypted")
            with opened.open(info) as content:
                yield _Member(info.filename, _is_executable(info.filename, mode), content)


def _is_executable(path: str, mode: int) -> bool:
    """Return True for an executable file. A zip file without mode bits is from a system without them."""
    known = stat.S_IFMT(mode) != 0
    return bool(mode & 0o111) if known else script_language(path) is not None


def _check_directory(stream: IO[bytes]) -> None:
    """Check the size of the zip directory before zipfile reads all of it."""
    stream.seek(0, io.SEEK_END)
    stream.seek(max(0, stream.tell() - 66_000))
    tail = stream.read()
    end = tail.rfind(b"PK\x05\x06")
    if end < 0 or len(tail) < end + 22:
        raise SkillArchiveRefused("the archive is damaged: its directory is missing")
    listing = int.from_bytes(tail[end + 12 : end + 16], "little")
    if b"PK\x06\x07" in tail or listing > _MAX_DIRECTORY:
        raise SkillTooLarge("the archive lists too many files for a skill", hint=_HINT)
    stream.seek(0)


def _tar_members(stream: IO[bytes]) -> Iterator[_Member]:
    with (
        _Bounded(fileobj=stream) as plain,
        tarfile.open(fileobj=plain, mode="r|") as opened,
    ):
        for info in opened:
            if info.isdir():
                _refuse_unless_inside(info.name)
                continue
            content = opened.extractfile(info) if info.isreg() else None
            if content is None:
                raise _not_a_file(info.name)
            yield _Member(info.name, bool(info.mode & 0o111), content)


class _Bounded(gzip.GzipFile):
    """Limit the uncompressed size, also of headers, which tarfile reads whole."""

    _left = MAX_BYTES + MAX_FILES * 4096

    def read(self, size: int | None = -1) -> bytes:
        wanted = self._left + 1 if size is None or size < 0 else min(size, self._left + 1)
        chunk = super().read(wanted)
        self._left -= len(chunk)
        if self._left < 0:
            raise SkillTooLarge(
                "the archive unpacks to more data than a skill may have", hint=_HINT
            )
        return chunk


def _refuse_unless_inside(folder: str) -> None:
    if folder.strip("./") and inner_path(folder) is None:
        raise SkillPathRefused(
            f"the archive has a folder with the path {folder[:80]!r}, which is not allowed",
            hint=_HINT,
        )


def _not_a_file(path: str) -> SkillPathRefused:
    return SkillPathRefused(
        f"{path[:80]!r} in the archive is a link or a special file",
        hint="replace the link by a copy of the file",
    )


def _skill_folder(target: Path) -> Path:
    """Return the only folder at the top, or the target itself."""
    inside = list(target.iterdir())
    if not inside:
        raise SkillArchiveRefused("the archive is empty")
    return inside[0] if len(inside) == 1 and inside[0].is_dir() else target
