"""Where registered packs lie, how a folder is copied there, and that it is still the same."""

from __future__ import annotations

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
    Entry,
    Kind,
    digest_folder,
    resolve_inside,
    translate_os_errors,
    walk,
)

_STAGING = ".staging"
_ABANDONED_S = 24 * 3600
# Nobody edits a registered version; whoever wants to makes a new one.
_FILE, _SCRIPT, _FOLDER = 0o444, 0o555, 0o755
_PLAIN = 0o777  # without the bits that lend somebody's rights
_RESTORE = "register it again from its source: the same content is put back, other content refused"


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
    """The folder, if every byte of it is as it was registered."""
    try:
        found = digest_folder(folder)
    except SkillError as error:
        raise SkillChanged(
            f"{folder} can not be verified: {error.message}", hint=_RESTORE
        ) from error
    if found != digest:
        raise SkillChanged(
            f"{folder} is not what was registered: {found} instead of {digest}", hint=_RESTORE
        )
    return folder


@contextmanager
def staging(home: Path, name: str) -> Iterator[Path]:
    """A folder of this name beside the packs, gone afterwards unless it was moved to its place."""
    around = packs_folder(home) / _STAGING / secrets.token_hex(8)
    folder = around / name
    with translate_os_errors(folder):
        make_private_folder(around)
        _sweep(around.parent)
        folder.mkdir()
    try:
        yield folder
    finally:
        remove(around)


def put(staged: Path, place: Path) -> None:
    """Move a staged pack to its place. What lies there is damaged, or was left by a crash."""
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
) -> None:
    """Copy a skill to use the copy. First what lies there is verified, so that whatever was added is
    noticed, and then the copy, so that nobody changed it in between."""
    if digest is not None:
        verify(source, digest)
    copy_skill(source.resolve(), target, shared=shared, keep_modes=keep_modes)
    if digest is not None and not is_intact(target, digest):
        raise SkillChanged(f"{source} was changed while it was copied", hint=_RESTORE)


def copy_skill(
    source: Path, target: Path, *, shared: Path | None = None, keep_modes: bool = False
) -> None:
    """Files and folders, links as what they point to. One that leaves the skill is refused by name."""
    roots = (source,) if shared is None else (source, shared)
    for entry in walk(source).entries:
        if not IGNORED_NAMES.isdisjoint(PurePosixPath(entry.path).parts):
            continue
        _copy(entry, source, target, roots, keep_modes=keep_modes)


def _copy(
    entry: Entry, source: Path, target: Path, roots: tuple[Path, ...], *, keep_modes: bool
) -> None:
    if inner_path(entry.path) is None:
        raise SkillPathRefused(f"{source}: the name {entry.path[:80]!r} can not be used everywhere")
    path, made = source / entry.path, target / entry.path
    match entry.kind:
        case Kind.FOLDER:
            with translate_os_errors(made):
                made.mkdir(mode=_FOLDER)
                if keep_modes:  # whoever copied it must be able to remove it
                    made.chmod(stat.S_IMODE(path.stat().st_mode) & _PLAIN | stat.S_IRWXU)
        case Kind.FILE:
            _copy_file(path, made, keep_mode=keep_modes)
        case Kind.LINK:
            real = resolve_inside(path, *roots)
            if real is None or not real.is_file():
                raise SkillPathRefused(
                    f"{path} is a link to {entry.target!r}, which is no file of this skill",
                    hint="copy the file into the skill instead",
                )
            _copy_file(real, made, keep_mode=keep_modes)
        case Kind.OTHER:
            raise SkillPathRefused(f"{path} is neither file nor folder")


def _copy_file(source: Path, target: Path, *, keep_mode: bool) -> None:
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW
    with (
        translate_os_errors(source),
        os.fdopen(os.open(source, flags), "rb") as reading,
        target.open("xb") as writing,
    ):
        shutil.copyfileobj(reading, writing)
        mode = stat.S_IMODE(os.fstat(reading.fileno()).st_mode)
        registered = _SCRIPT if mode & 0o111 else _FILE
        os.fchmod(writing.fileno(), mode & _PLAIN if keep_mode else registered)


def _sweep(folder: Path) -> None:
    """Remove what was staged by somebody who died; whoever still works has begun today."""
    for left in folder.iterdir():
        with suppress(OSError):
            if left.stat().st_mtime < time.time() - _ABANDONED_S:
                remove(left)


def remove(folder: Path) -> None:
    if folder.is_symlink():
        folder.unlink()
    shutil.rmtree(folder, ignore_errors=True)
