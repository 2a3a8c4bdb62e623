"""What lies in a skill's folder, listed within bounds and without following anything."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from butlers.domain.errors import SkillError, SkillTooLarge

MAX_FILES = 1_000
MAX_BYTES = 25 * 1024 * 1024
MAX_DEPTH = 12
# What tools leave behind; it is no part of a skill and is not copied.
LEFT_BEHIND = frozenset({".git", "__pycache__", ".DS_Store"})


class Kind(StrEnum):
    FILE = "file"
    FOLDER = "folder"
    LINK = "link"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Entry:
    """``path`` is relative, with slashes. ``stamp`` changes whenever the content may have."""

    path: str
    kind: Kind
    size: int
    executable: bool
    stamp: tuple[int, int, int, int]
    target: str | None = None


@dataclass(frozen=True, slots=True)
class Tree:
    root: Path
    entries: tuple[Entry, ...]

    def get(self, path: str) -> Entry | None:
        return next((entry for entry in self.entries if entry.path == path), None)

    def files(self) -> tuple[Entry, ...]:
        return tuple(entry for entry in self.entries if entry.kind is Kind.FILE)


def walk(root: Path, *, max_files: int = MAX_FILES, max_bytes: int = MAX_BYTES) -> Tree:
    """All entries in the order of their paths. More than the bounds allow is a SkillTooLarge."""
    found: list[Entry] = []
    total = 0
    waiting = [("", 0)]
    while waiting:
        below, depth = waiting.pop()
        for entry in _entries(root, below):
            found.append(entry)
            total += entry.size if entry.kind is Kind.FILE else 0
            if entry.kind is Kind.FOLDER:
                waiting.append((f"{entry.path}/", depth + 1))
        if len(found) > max_files or depth > MAX_DEPTH:
            raise SkillTooLarge(
                f"{root}: more than {max_files} files, or folders more than {MAX_DEPTH} deep",
                hint="a skill is small: move data and dependencies out of it",
            )
        if total > max_bytes:
            raise SkillTooLarge(f"{root}: more than {max_bytes // (1024 * 1024)} MB of files")
    found.sort(key=lambda entry: os.fsencode(entry.path))
    return Tree(root, tuple(found))


def _entries(root: Path, below: str) -> list[Entry]:
    try:
        with os.scandir(f"{root}/{below}") as listing:
            return [_entry(item, below) for item in listing]
    except OSError as error:
        raise SkillError(
            f"{root / below}: {error.strerror or error}", hint="may you read this folder?"
        ) from error


def _entry(item: os.DirEntry[str], below: str) -> Entry:
    info = item.stat(follow_symlinks=False)
    path = f"{below}{item.name}"
    stamp = (info.st_size, info.st_mtime_ns, info.st_ctime_ns, info.st_ino)
    if stat.S_ISREG(info.st_mode):
        return Entry(path, Kind.FILE, info.st_size, bool(info.st_mode & 0o111), stamp)
    if stat.S_ISDIR(info.st_mode):
        return Entry(path, Kind.FOLDER, 0, False, stamp)
    if stat.S_ISLNK(info.st_mode):
        return Entry(path, Kind.LINK, 0, False, stamp, os.readlink(item.path))
    return Entry(path, Kind.OTHER, 0, False, stamp)


def resolve_inside(path: Path, *roots: Path) -> Path | None:
    """Where a path really leads, if it is there and below one of the roots."""
    try:
        real = path.resolve(strict=True)
    except (OSError, RuntimeError):
        return None
    return real if any(real.is_relative_to(root.resolve()) for root in roots) else None
