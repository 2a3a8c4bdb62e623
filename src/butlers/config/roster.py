"""The folders of butlers: the shipped roster, its working copy, and the user's own."""

from __future__ import annotations

import hashlib
import json
import shlex
import shutil
import stat
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import count
from pathlib import Path, PurePosixPath

from butlers.config.butler import ButlerConfig
from butlers.config.document import Document, Problem
from butlers.config.files import (
    PRIVATE_FILE,
    PRIVATE_FOLDER,
    exclusive_lock,
    make_private_folder,
    replace_file,
)
from butlers.config.fleet import FleetConfig
from butlers.config.folders import CONFIG_FILE, FLEET_FILE, butlers_in, may_have_config
from butlers.config.overrides import check_overrides, override_file, working_copy
from butlers.config.settings import Settings
from butlers.domain.errors import ConfigInvalid, ConfigMissing
from butlers.domain.queues import MESSENGER, SWITCHBOARD

NOTES_FILE = "AGENTS.md"
NOTES_LINE = b"# Notes to self"

_LOCK = ".roster.lock"
# The files that were copied, with the hashes of what was written: only these may be removed when they leave
# the shipped roster, and a file with other content was edited. Other files in the copy, such as a skill that
# a session made, stay.
_MANIFEST = ".roster.json"
_EDITED = "edited"  # in the home: edited files that a refresh replaced
_SKIPPED = "__pycache__"
# The butlers that every fleet has, and what is impossible without each.
_CORE = {
    SWITCHBOARD: "no message can come in without the Switchboard",
    MESSENGER: "no answer can go out without the Messenger",
}


@dataclass(frozen=True, slots=True)
class _Shipped:
    content: bytes
    mode: int


@dataclass(frozen=True, slots=True)
class ReplacedEdit:
    """A file of the working copy that a person had edited, and the copy of it that was kept."""

    file: Path
    kept: Path

    def __str__(self) -> str:
        text = f"{self.file} was edited, and is now as shipped again. Your version is {self.kept}."
        if self.file.name == CONFIG_FILE:
            place = override_file(self.file.parent.name, self.file.parents[2])
            text += f"\nhint: put your changes, and only these, into {place}"
        else:
            text += "\nhint: copy the butler's folder to butlers/ to change more than its settings"
        return text


OnEdit = Callable[[ReplacedEdit], None]
# Names of the copied files, with the hashes of the content that they may have. None: unknown.
_Manifest = Mapping[PurePosixPath, frozenset[str] | None]


def _ignore_edit(_edit: ReplacedEdit) -> None:
    return None


def refresh_working_copy(shipped: Path, home: Path, on_edit: OnEdit = _ignore_edit) -> Path:
    """Update $BUTLERS_HOME/roster from the shipped roster, and keep the notes that sessions wrote.

    A file that a person edited is replaced too; its content is kept in $BUTLERS_HOME/edited, and reported.
    """
    try:
        wanted = _read_shipped(shipped)
        make_private_folder(home)
        with exclusive_lock(home / _LOCK):
            return _refresh(wanted, home, on_edit)
    except OSError as error:
        raise ConfigInvalid(
            f"the roster cannot be copied: {error.strerror or error}",
            path=Path(error.filename) if isinstance(error.filename, str) else working_copy(home),
            hint="check the free disk space, and that BUTLERS_HOME is writable",
        ) from error


def _refresh(wanted: Mapping[PurePosixPath, _Shipped], home: Path, on_edit: OnEdit) -> Path:
    copy, manifest = working_copy(home), home / _MANIFEST
    earlier = _read_manifest(manifest)
    now = {path: frozenset({_hash(file.content)}) for path, file in wanted.items()}
    # Written before the first copy and again after the last removal: if the refresh is interrupted, the
    # next one still knows every file that was copied, with its old and its new content.
    both = {**earlier, **{path: _either(earlier.get(path), new) for path, new in now.items()}}
    _write_manifest(manifest, both, earlier)
    for path in [*(path for path in earlier if path not in wanted), *wanted]:
        _keep_edit(copy, path, wanted.get(path), earlier, on_edit)
    for path in sorted(path for path in earlier if path not in wanted):
        _remove(copy, path)
    make_private_folder(copy)
    for path, file in wanted.items():
        _update(copy, path, file)
    _write_manifest(manifest, now, both)
    return copy


# -- the shipped roster ------------------------------------------------------------------------------------


def _read_shipped(shipped: Path) -> dict[PurePosixPath, _Shipped]:
    if not shipped.is_dir():
        raise ConfigMissing(
            "the shipped roster is missing", path=shipped, hint="reinstall, or clone it again"
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
                raise _refused(path, root, "points to a folder that contains it")
            yield from _files(path, root, (*above, real))


def _real(link: Path, root: Path) -> Path:
    try:
        real = link.resolve(strict=True)
    except (OSError, RuntimeError):
        raise _refused(link, root, "points to a missing file") from None
    if not real.is_relative_to(root):
        raise _refused(link, root, "points outside the roster")
    return real


def _refused(link: Path, root: Path, why: str) -> ConfigInvalid:
    return ConfigInvalid(
        f"the symlink {link.relative_to(root)} {why}",
        path=link,
        hint="replace the symlink with the file itself",
    )


def _mode(path: Path) -> int:
    # Private, and writable even if the shipped file is not: sessions write their notes here.
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
            "the roster has a file here, but there is a folder that is not empty",
            path=target,
            hint="move the content of the folder elsewhere",
        )
    replace_file(target, content, file.mode)


def _keep_edit(
    copy: Path, path: PurePosixPath, file: _Shipped | None, earlier: _Manifest, on_edit: OnEdit
) -> None:
    """Keep the content of a file that differs from what was written there. Sessions write the notes file."""
    present = _present(copy, path)
    if present is None or path.name == NOTES_FILE or (file and file.content == present):
        return
    if path in earlier and not _is_edited(path, present, earlier[path]):
        return
    kept = _free_place(copy.parent / _EDITED / path, present)
    make_private_folder(kept.parent)
    replace_file(kept, present)
    on_edit(ReplacedEdit(copy / path, kept))


def _is_edited(path: PurePosixPath, present: bytes, written: frozenset[str] | None) -> bool:
    if (
        written is None
    ):  # an older version of the file, or an edit: keep what a person is likely to edit
        return path.name == CONFIG_FILE
    return _hash(present) not in written


def _free_place(path: Path, content: bytes) -> Path:
    """Return a path beside the given one that does not exist, or has this content already."""
    for number in count(1):
        place = path.with_name(f"{path.name}.{number}")
        if not place.exists() or place.read_bytes() == content:
            return place
    raise AssertionError("unreachable")


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _remove(copy: Path, path: PurePosixPath) -> None:
    present = _present(copy, path)
    if present is None or (path.name == NOTES_FILE and _notes_of(present)[1].strip()):
        return  # keep the notes of a removed butler
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
    """Return the content in the copy, or None. Symlinks in the copy are not followed."""
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
    """Return the shipped text up to its notes line, followed by the present text from that line on."""
    line, notes = _notes_of(present)
    if not line:
        return shipped
    head = shipped[: len(shipped) - sum(map(len, _notes_of(shipped)))]
    if head and not head.endswith(b"\n"):
        head += b"\n"
    return head + line + notes


def _notes_of(text: bytes) -> tuple[bytes, bytes]:
    """Return the notes line and the text after it; both are empty if there is none."""
    start = 0
    for line in text.splitlines(keepends=True):
        if line.rstrip() == NOTES_LINE:
            return line, text[start + len(line) :]
        start += len(line)
    return b"", b""


def _read_manifest(path: Path) -> _Manifest:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}  # without a manifest nothing is removed
    if isinstance(found, list):  # as written by earlier versions
        found = dict.fromkeys((name for name in found if isinstance(name, str)), None)
    if not isinstance(found, dict):
        return {}
    return {PurePosixPath(name): _hashes(found[name]) for name in found if _is_inside(name)}


def _hashes(value: object) -> frozenset[str] | None:
    return frozenset(map(str, value)) if isinstance(value, list) else None


def _either(before: frozenset[str] | None, after: frozenset[str]) -> frozenset[str]:
    return after if before is None else before | after


def _is_inside(name: object) -> bool:
    return isinstance(name, str) and name[:1] != "/" and ".." not in PurePosixPath(name).parts


def _write_manifest(path: Path, files: _Manifest, present: _Manifest) -> None:
    if files == present:
        return
    names = {str(file): sorted(files[file] or ()) for file in sorted(files)}
    replace_file(path, json.dumps(names, indent=0).encode())


# -- known butlers -------------------------------------------------------------------------------


_KNOWN, _KNOWN_LOCK = "butlers.json", ".butlers.lock"


def remember_butler(home: Path, directory: Path) -> None:
    """Record the folder of a butler that starts, so that its packs are found from any directory.

    Butlers of the roster are found without it. A folder is forgotten when its butler.toml is gone.
    """
    folder = directory.resolve()
    if folder.is_relative_to(working_copy(home).resolve()):
        return
    make_private_folder(home / "registry")
    with exclusive_lock(home / "registry" / _KNOWN_LOCK):
        before = known_butlers(home)
        if folder not in before:
            listed = sorted(str(path) for path in (*before, folder))
            replace_file(home / "registry" / _KNOWN, json.dumps(listed, indent=2).encode())


def known_butlers(home: Path) -> tuple[Path, ...]:
    """Return the recorded folders that still have, or may have, a configuration."""
    try:
        listed = json.loads((home / "registry" / _KNOWN).read_bytes())
    except (FileNotFoundError, ValueError):
        return ()  # it is written again as butlers start
    paths = (
        [Path(path) for path in listed if isinstance(path, str)] if isinstance(listed, list) else []
    )
    return tuple(path for path in paths if may_have_config(path))


# -- the fleet's butlers -------------------------------------------------------------------------


def find_butlers(
    fleet: FleetConfig,
    settings: Settings,
    *,
    shipped: Path,
    own: Path | None,
    refresh: bool = True,
    on_edit: OnEdit = _ignore_edit,
) -> tuple[Path, ...]:
    """Return the config folders to run: the fleet's roster from its working copy, then the user's own.

    Without ``refresh`` an existing working copy is not changed.
    """
    copy = working_copy(settings.home)
    if refresh or not copy.is_dir():
        copy = refresh_working_copy(shipped, settings.home, on_edit)
    roster = butlers_in(copy)
    check_overrides(settings.home, roster)
    users = butlers_in(own) if own else {}
    for name in fleet.roster:
        if name not in roster and name not in users:
            raise _unknown_butler(name, sorted({*roster, *users}), settings)
    chosen = (roster[name] for name in fleet.roster if name in roster)
    return (*chosen, *users.values())


def check_distinct(configs: Iterable[ButlerConfig]) -> None:
    """Raise ConfigInvalid if two butlers have the same name, port or database."""
    butlers = tuple(configs)
    clashes = [
        *_clashes(butlers, "name", lambda butler: butler.name),
        *_clashes(butlers, "port", lambda butler: butler.port or None),
        *_clashes(butlers, "database", _database),
    ]
    if clashes:
        raise ConfigInvalid(
            "\n".join(clashes),
            hint="change one of each pair",
        )


def check_core(configs: Iterable[ButlerConfig], home: Path) -> None:
    """Raise ConfigInvalid if the Switchboard or the Messenger is missing: no message would be answered."""
    names = {config.name for config in configs}
    missing = [name for name in _CORE if name not in names]
    if not missing:
        return
    listed = " and ".join(repr(name) for name in missing)
    needs = "; ".join(_CORE[name] for name in missing)
    problem = Problem(
        ("roster",),
        f"roster: the core butler{'s' if missing[1:] else ''} {listed}"
        f" {'are' if missing[1:] else 'is'} missing: {needs}",
        f"add {listed} to the roster, or start without: `butlers up --partial`",
    )
    raise Document.around(home / FLEET_FILE, None, {}).invalid([problem])


def _unknown_butler(name: str, available: list[str], settings: Settings) -> ConfigMissing:
    near = get_close_matches(name, available, n=1)
    asked = f"did you mean {near[0]!r}? " if near else ""
    listed = ", ".join(available) or "none"
    return ConfigMissing(
        f"roster names {name!r}, but that butler does not exist; available: {listed}",
        path=settings.home / FLEET_FILE,
        key="roster",
        hint=f"{asked}correct the roster, or create the butler: `butlers init {shlex.quote(name)}`",
    )


def _database(butler: ButlerConfig) -> str:
    schema = f", schema {butler.db.schema}" if butler.db.schema else ""
    return f"{butler.db.name}{schema}"


def _clashes(
    butlers: tuple[ButlerConfig, ...], what: str, of: Callable[[ButlerConfig], Hashable]
) -> Iterator[str]:
    first: dict[Hashable, ButlerConfig] = {}
    for butler in butlers:
        value = of(butler)
        other = first.setdefault(value, butler)
        if value is not None and other is not butler:
            yield f"two butlers have the {what} {value}: {other.file} and {butler.file}"
