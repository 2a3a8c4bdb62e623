"""Files of a skill's folder: bounded listing, path resolution, hash, and translated OS errors."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from butlers.domain.errors import SkillError, SkillTooLarge

MAX_FILES = 1_000
MAX_BYTES = 25 * 1024 * 1024
MAX_DEPTH = 12
# Files that tools leave in a folder. They are not copied with a skill.
IGNORED_NAMES = frozenset({".git", "__pycache__", ".DS_Store"})
# Changes with the encoding below, so that hashes of two encodings never match.
_ENCODING = b"butlers skill tree 1\n"
_CHUNK = 1 << 20


class EntryKind(StrEnum):
    FILE = "file"
    FOLDER = "folder"
    LINK = "link"
    OTHER = "other"


_MARKS = {EntryKind.FILE: b"f", EntryKind.FOLDER: b"d", EntryKind.LINK: b"l"}


@contextmanager
def translate_os_errors(path: Path) -> Iterator[None]:
    """Raise SkillError for an OSError, with the path and a hint."""
    try:
        yield
    except OSError as error:
        where = error.filename if isinstance(error.filename, str) else path
        raise SkillError(
            f"{where}: {error.strerror or error}",
            hint="check free space, and your permissions on this path",
        ) from error


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """One entry of a folder. ``path`` is relative, with slashes."""

    path: str
    kind: EntryKind
    size: int = 0
    executable: bool = False
    target: str | None = None


@dataclass(frozen=True, slots=True)
class Tree:
    root: Path
    entries: tuple[TreeEntry, ...]

    def get(self, path: str) -> TreeEntry | None:
        return next((entry for entry in self.entries if entry.path == path), None)

    def paths(self) -> frozenset[str]:
        return frozenset(entry.path for entry in self.entries)

    def files(self) -> tuple[TreeEntry, ...]:
        return tuple(entry for entry in self.entries if entry.kind is EntryKind.FILE)


def walk(root: Path, *, skip: frozenset[str] = frozenset()) -> Tree:
    """List all entries, sorted by path, without following links. Raise SkillTooLarge over the limits.

    Entries whose name is in ``skip``, and what is below them, are not listed.
    """
    found: list[TreeEntry] = []
    total = 0
    waiting = [("", 0)]
    while waiting:
        below, depth = waiting.pop()
        for entry in _entries(root, below):
            if entry.path.rpartition("/")[2] in skip:
                continue
            found.append(entry)
            total += entry.size
            if entry.kind is EntryKind.FOLDER:
                waiting.append((f"{entry.path}/", depth + 1))
        if len(found) > MAX_FILES or depth > MAX_DEPTH:
            raise SkillTooLarge(
                f"{root}: more than {MAX_FILES} files, or folders more than {MAX_DEPTH} deep",
                hint="move data and dependencies out of the skill",
            )
        if total > MAX_BYTES:
            raise SkillTooLarge(f"{root}: more than {MAX_BYTES // (1024 * 1024)} MB of files")
    found.sort(key=lambda entry: os.fsencode(entry.path))
    return Tree(root, tuple(found))


def _entries(root: Path, below: str) -> list[TreeEntry]:
    try:
        with os.scandir(f"{root}/{below}") as listing:
            return [_entry(item, below) for item in listing]
    except OSError as error:
        raise SkillError(
            f"{root / below}: {error.strerror or error}", hint="check your permissions on it"
        ) from error


def _entry(item: os.DirEntry[str], below: str) -> TreeEntry:
    info = item.stat(follow_symlinks=False)
    path = f"{below}{item.name}"
    if stat.S_ISREG(info.st_mode):
        return TreeEntry(path, EntryKind.FILE, info.st_size, bool(info.st_mode & 0o111))
    if stat.S_ISDIR(info.st_mode):
        return TreeEntry(path, EntryKind.FOLDER)
    if stat.S_ISLNK(info.st_mode):
        return TreeEntry(path, EntryKind.LINK, target=os.readlink(item.path))
    return TreeEntry(path, EntryKind.OTHER)


def resolve_inside(path: Path, *roots: Path) -> Path | None:
    """Return the real path if it exists below one of the roots, else None."""
    try:
        real = path.resolve(strict=True)
    except (OSError, RuntimeError):
        return None
    return real if any(real.is_relative_to(root.resolve()) for root in roots) else None


@dataclass(frozen=True, slots=True)
class Leaf:
    """Hash input for one entry. ``content`` is the hash of a file's bytes, or a link's target."""

    path: bytes
    kind: EntryKind
    executable: bool
    content: bytes


def digest_folder(folder: Path) -> str:
    """Return `sha256:…` over names, kinds, executable bits and bytes; times and owners are ignored."""
    leaves = []
    for entry in walk(folder).entries:
        if entry.kind is EntryKind.OTHER:
            raise SkillError(f"{folder / entry.path} is neither a file nor a folder")
        if entry.kind is EntryKind.FILE:
            content = _hash_file(f"{folder}/{entry.path}")
        else:
            content = os.fsencode(entry.target or "")
        leaves.append(Leaf(os.fsencode(entry.path), entry.kind, entry.executable, content))
    return digest_leaves(leaves)


def digest_leaves(leaves: Iterable[Leaf]) -> str:
    """Hash the leaves. Each part carries its length, so two different trees never hash the same bytes."""
    whole = hashlib.sha256(_ENCODING)
    for leaf in sorted(leaves, key=lambda leaf: leaf.path):
        whole.update(_MARKS[leaf.kind] + (b"x" if leaf.executable else b"-"))
        for part in (leaf.path, leaf.content):
            whole.update(len(part).to_bytes(8, "big") + part)
    return f"sha256:{whole.hexdigest()}"


def digest_file(file: Path) -> str:
    """Return `sha256:…` of one file's bytes. Raise SkillError for a link."""
    return f"sha256:{_hash_file(str(file)).hex()}"


def _hash_file(path: str) -> bytes:
    try:
        # NOFOLLOW: a link may have replaced the file since it was listed.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            content = hashlib.sha256()
            while chunk := os.read(descriptor, _CHUNK):
                content.update(chunk)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise SkillError(f"{path}: {error.strerror or error}") from error
    return content.digest()
