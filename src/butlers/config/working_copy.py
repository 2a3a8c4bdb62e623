"""The shipped roster as butlers run it: a copy under BUTLERS_HOME that sessions may write to."""

from __future__ import annotations

import json
import shutil
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from butlers.config.files import (
    PRIVATE_FILE,
    PRIVATE_FOLDER,
    exclusive_lock,
    make_private_folder,
    replace_file,
)
from butlers.domain.errors import ConfigInvalid, ConfigMissing

NOTES_FILE = "AGENTS.md"
NOTES_LINE = b"# Notes to self"

_COPY = "roster"
_LOCK = ".roster.lock"
# Only what we copied earlier may be removed when it leaves the shipped roster. Whatever else is in
# the copy (a skill that a session made, say) is not ours to delete.
_MANIFEST = ".roster.json"
_SKIPPED = "__pycache__"


@dataclass(frozen=True, slots=True)
class _Shipped:
    content: bytes
    mode: int


def working_copy(home: Path) -> Path:
    return home / _COPY


def refresh_working_copy(shipped: Path, home: Path) -> Path:
    """Bring $BUTLERS_HOME/roster up to date with what ships, keeping the notes sessions wrote."""
    try:
        wanted = _read_shipped(shipped)
        make_private_folder(home)
        with exclusive_lock(home / _LOCK):
            return _refresh(wanted, home)
    except OSError as error:
        raise ConfigInvalid(
            f"the roster can not be copied here: {error.strerror or error}",
            path=Path(error.filename) if isinstance(error.filename, str) else working_copy(home),
            hint="check free space and that you may write to BUTLERS_HOME",
        ) from error


def _refresh(wanted: Mapping[PurePosixPath, _Shipped], home: Path) -> Path:
    copy, manifest = working_copy(home), home / _MANIFEST
    earlier = _read_manifest(manifest)
    # Written before the first copy and again after the last removal: cut short anywhere in between,
    # the next refresh still knows every file that came from us.
    _write_manifest(manifest, earlier | set(wanted), earlier)
    for path in sorted(earlier - set(wanted)):
        _remove(copy, path)
    make_private_folder(copy)
    for path, file in wanted.items():
        _update(copy, path, file)
    _write_manifest(manifest, set(wanted), earlier | set(wanted))
    return copy


# -- what ships ------------------------------------------------------------------------------------


def _read_shipped(shipped: Path) -> dict[PurePosixPath, _Shipped]:
    if not shipped.is_dir():
        raise ConfigMissing(
            "the shipped roster is not there", path=shipped, hint="reinstall, or clone it again"
        )
    root = shipped.resolve()
    return {
        PurePosixPath(path.relative_to(root)): _Shipped(path.read_bytes(), _mode(path))
        for path in _files(root, root, (root,))
    }


def _files(folder: Path, root: Path, above: tuple[Path, ...]) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.name == _SKIPPED:
            continue
        real = _real(path, root) if path.is_symlink() else path.resolve()
        if real.is_file():
            yield path
        elif real.is_dir():
            if real in above:
                raise _refused(path, root, "leads back to a folder around it")
            yield from _files(path, root, (*above, real))


def _real(link: Path, root: Path) -> Path:
    try:
        real = link.resolve(strict=True)
    except (OSError, RuntimeError):
        raise _refused(link, root, "leads nowhere") from None
    if not real.is_relative_to(root):
        raise _refused(link, root, "leads out of the roster")
    return real


def _refused(link: Path, root: Path, why: str) -> ConfigInvalid:
    return ConfigInvalid(
        f"the symlink {link.relative_to(root)} {why}",
        path=link,
        hint="replace it by the file itself",
    )


def _mode(path: Path) -> int:
    # Private, and writable even when what ships is not: sessions write their notes here.
    return PRIVATE_FOLDER if path.stat().st_mode & stat.S_IXUSR else PRIVATE_FILE


# -- the copy --------------------------------------------------------------------------------------


def _update(copy: Path, path: PurePosixPath, file: _Shipped) -> None:
    target = copy / path
    present = _present(copy, path)
    content = file.content
    if present is not None and path.name == NOTES_FILE:
        content = with_notes_of(content, present)
    if present == content and stat.S_IMODE(target.stat().st_mode) == file.mode:
        return
    _make_folders(copy, path)
    if target.is_dir() and not target.is_symlink():
        raise ConfigInvalid(
            "the roster now has a file here, and this folder is not empty",
            path=target,
            hint="move what is in it elsewhere",
        )
    replace_file(target, content, file.mode)


def _remove(copy: Path, path: PurePosixPath) -> None:
    present = _present(copy, path)
    if present is None or (path.name == NOTES_FILE and _notes_of(present)[1].strip()):
        return  # notes outlive the butler that wrote them
    (copy / path).unlink()
    for folder in path.parents[:-1]:
        if not _remove_empty(copy / folder):
            return


def _remove_empty(folder: Path) -> bool:
    if {entry.name for entry in folder.iterdir()} - {_SKIPPED}:
        return False
    shutil.rmtree(folder)
    return True


def _present(copy: Path, path: PurePosixPath) -> bytes | None:
    """What the copy has there. A symlink in the copy is not ours, so nothing is read through it."""
    chain = [copy / folder for folder in path.parents[:-1]] + [copy / path]
    if any(part.is_symlink() for part in chain) or not (copy / path).is_file():
        return None
    return (copy / path).read_bytes()


def _make_folders(copy: Path, path: PurePosixPath) -> None:
    for folder in reversed(path.parents[:-1]):
        target = copy / folder
        if target.is_symlink() or target.is_file():
            target.unlink()
        target.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)


# -- notes and manifest ----------------------------------------------------------------------------


def with_notes_of(shipped: bytes, present: bytes) -> bytes:
    """The shipped text down to its notes line, and what the present one has from that line on."""
    line, notes = _notes_of(present)
    if not line:
        return shipped
    head = shipped[: len(shipped) - sum(map(len, _notes_of(shipped)))]
    if head and not head.endswith(b"\n"):
        head += b"\n"
    return head + line + notes


def _notes_of(text: bytes) -> tuple[bytes, bytes]:
    """The notes line and all that follows it; both empty where there is none."""
    start = 0
    for line in text.splitlines(keepends=True):
        if line.rstrip() == NOTES_LINE:
            return line, text[start + len(line) :]
        start += len(line)
    return b"", b""


def _read_manifest(path: Path) -> set[PurePosixPath]:
    try:
        names = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        names = None
    if not isinstance(names, list):
        return set()  # without it we remove nothing, which is the safe side
    return {PurePosixPath(name) for name in names if _is_inside(name)}


def _is_inside(name: object) -> bool:
    return isinstance(name, str) and name[:1] != "/" and ".." not in PurePosixPath(name).parts


def _write_manifest(path: Path, files: set[PurePosixPath], present: set[PurePosixPath]) -> None:
    if files == present:
        return
    names = sorted(str(file) for file in files)
    replace_file(path, json.dumps(names, indent=0).encode())
