"""Folders of registered packs: paths, staging, verified copies."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath

from butlers.config.files import make_private_folder
from butlers.domain.errors import SkillChanged, SkillError, SkillPathRefused
from butlers.skills.names import inner_path
from butlers.skills.skill import BUILT_IN
from butlers.skills.tree import (
    IGNORED_NAMES,
    EntryKind,
    Leaf,
    TreeEntry,
    digest_folder,
    digest_leaves,
    resolve_inside,
    translate_os_errors,
    walk,
)

_STAGING = ".staging"
_ABANDONED_S = 24 * 3600
_CHUNK = 1 << 20
# A registered version is read-only: a change needs a new version.
_FILE, _SCRIPT, _FOLDER = 0o444, 0o555, 0o755
_PLAIN = 0o777  # without setuid, setgid and sticky bits
_RESTORE = "register it again from its source to restore the files"


def packs_folder(home: Path) -> Path:
    return home / "skills"


def pack_path(home: Path, name: str, version: str, owner: str) -> Path:
    kind = "built-in" if owner == BUILT_IN else "custom"
    return packs_folder(home) / kind / f"{name}@{version}"


def is_intact(folder: Path, digest: str) -> bool:
    try:
        return digest_folder(folder) == digest
    except SkillError:
        return False


def verify(folder: Path, digest: str) -> Path:
    """Return the folder. Raise SkillChanged unless it has the registered hash."""
    try:
        found = digest_folder(folder)
    except SkillError as error:
        raise SkillChanged(
            f"{folder} cannot be verified: {error.message}", hint=_RESTORE
        ) from error
    if found != digest:
        raise SkillChanged(
            f"{folder} has changed since it was registered: {found} instead of {digest}",
            hint=_RESTORE,
        )
    return folder


@contextmanager
def staging(home: Path, name: str) -> Iterator[Path]:
    """Yield a temporary folder of this name beside the packs, removed at the end unless moved."""
    around = packs_folder(home) / _STAGING / secrets.token_hex(8)
    folder = around / name
    with translate_os_errors(folder):
        make_private_folder(around)
        _remove_abandoned(around.parent)
        folder.mkdir()
    try:
        yield folder
    finally:
        remove(around)


def put(staged: Path, place: Path) -> None:
    """Move a staged pack to its place and replace what is there: it is damaged or from a crash."""
    with translate_os_errors(place):
        make_private_folder(place.parent)
        remove(place)
        os.rename(staged, place)


def copy_verified(
    source: Path,
    target: Path,
    digest: str | None,
    *,
    shared: Path | None = None,
    keep_modes: bool = False,
) -> str:
    """Copy a skill into a folder that only we can write, verify its hash, and return it.

    What is hashed are the bytes as they are written, so a change of the source between a check and the
    copy makes no difference. Raise SkillChanged, with nothing of use in ``target``.
    """
    try:
        copied = copy_skill(
            source.resolve(),
            target,
            shared=shared,
            keep_modes=keep_modes,
            strict=digest is not None,
        )
    except SkillPathRefused as error:
        if digest is None:
            raise
        raise SkillChanged(
            f"{source} cannot be verified: {error.message}", hint=_RESTORE
        ) from error
    found = digest_leaves(copied)
    if digest is not None and found != digest:
        raise SkillChanged(
            f"{source} has changed since it was registered: {found} instead of {digest}",
            hint=_RESTORE,
        )
    return found


def copy_skill(
    source: Path,
    target: Path,
    *,
    shared: Path | None = None,
    keep_modes: bool = False,
    strict: bool = False,
) -> list[Leaf]:
    """Copy files and folders, and links as the files they point to. Return what was written, hashed.

    Raise SkillPathRefused for a link that points outside the skill and ``shared``; if ``strict``, also for
    files that are not copied with a skill.
    """
    roots = (source,) if shared is None else (source, shared)
    copied = []
    for entry in walk(source, skip=frozenset() if strict else IGNORED_NAMES).entries:
        if IGNORED_NAMES.isdisjoint(PurePosixPath(entry.path).parts):
            copied.append(_copy(entry, source, target, roots, keep_modes=keep_modes))
        elif strict:
            raise SkillPathRefused(f"{source / entry.path} was added")
    return copied


def _copy(
    entry: TreeEntry, source: Path, target: Path, roots: tuple[Path, ...], *, keep_modes: bool
) -> Leaf:
    if inner_path(entry.path) is None:
        raise SkillPathRefused(f"{source}: the name {entry.path[:80]!r} is not portable")
    path, made = source / entry.path, target / entry.path
    match entry.kind:
        case EntryKind.FOLDER:
            with translate_os_errors(made):
                made.mkdir(mode=_FOLDER)
                if keep_modes:  # the owner keeps the right to remove it
                    made.chmod(stat.S_IMODE(path.stat().st_mode) & _PLAIN | stat.S_IRWXU)
            return Leaf(os.fsencode(entry.path), EntryKind.FOLDER, executable=False, content=b"")
        case EntryKind.FILE:
            return _copy_file(entry, path, made, keep_mode=keep_modes)
        case EntryKind.LINK:
            real = resolve_inside(path, *roots)
            if real is None or not real.is_file():
                raise SkillPathRefused(
                    f"{path} is a link to {entry.target!r}, which is not a file of this skill",
                    hint="copy the file into the skill instead",
                )
            return _copy_file(entry, real, made, keep_mode=keep_modes)
        case EntryKind.OTHER:
            raise SkillPathRefused(f"{path} is neither a file nor a folder")


def _copy_file(entry: TreeEntry, source: Path, target: Path, *, keep_mode: bool) -> Leaf:
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW
    content = hashlib.sha256()
    with (
        translate_os_errors(source),
        os.fdopen(os.open(source, flags), "rb") as reading,
        target.open("xb") as writing,
    ):
        while chunk := reading.read(_CHUNK):
            content.update(chunk)
            writing.write(chunk)
        mode = stat.S_IMODE(os.fstat(reading.fileno()).st_mode)
        registered = _SCRIPT if mode & 0o111 else _FILE
        os.fchmod(writing.fileno(), mode & _PLAIN if keep_mode else registered)
    executable = bool(mode & 0o111)
    return Leaf(os.fsencode(entry.path), EntryKind.FILE, executable, content.digest())


def _remove_abandoned(folder: Path) -> None:
    """Remove folders that a crashed process left; a running one is younger than the limit."""
    for left in folder.iterdir():
        with suppress(OSError):
            if left.stat().st_mtime < time.time() - _ABANDONED_S:
                remove(left)


def remove(folder: Path) -> None:
    if folder.is_symlink():
        folder.unlink()
    shutil.rmtree(folder, ignore_errors=True)
