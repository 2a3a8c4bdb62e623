"""Edits of a butler's soul, soul.md, by sessions and the owner. Each edit is kept and can be undone.

CLAUDE.md, which a person wrote, is never changed: soul.md takes its place, and undoing the first edit
removes soul.md again.
"""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

from butlers.config.files import exclusive_lock, make_private_folder, replace_file
from butlers.domain.errors import InternalError, InvalidArguments, NotFound, StateConflict
from butlers.sessions.system_prompt import FILE, SOUL, has_words, read_soul

FOLDER = "souls"
MAX_SOUL = 50_000  # characters
MAX_DIFF = 20_000  # characters of one edit that are shown


@dataclass(frozen=True, slots=True)
class SoulEdit:
    """``before`` is None if there was no soul.md; ``after`` is the hash of the new text."""

    number: int
    before: str | None
    after: str
    by: str
    at: str


@dataclass(frozen=True, slots=True)
class SoulChange:
    """One edit as a person reads it. ``diff`` is a unified diff without file names."""

    number: int
    by: str
    at: str
    diff: str


@dataclass(frozen=True, slots=True)
class Soul:
    directory: Path  # the butler's
    home: Path
    butler: str

    def edit(self, text: str, by: str, at: datetime, replaces: str | None = None) -> int:
        """Replace the whole soul, or one passage of it. Return the number of the edit."""
        with self._writing() as folder:
            before = self._current()
            whole = text if replaces is None else self._with(text, replaces)
            _check(whole)
            number = max((edit.number for edit in _edits(folder)), default=0) + 1
            edit = SoulEdit(number, before, _digest(whole), by, at.isoformat())
            replace_file(_record(folder, number), json.dumps(asdict(edit)).encode())
            replace_file(self._file, whole.encode(), 0o644)
        return number

    def undo(self) -> int:
        """Undo the last edit. Return its number."""
        with self._writing() as folder:
            current = self._current()
            for edit in sorted(_edits(folder), key=lambda edit: -edit.number):
                if edit.before == current:  # a kill came between the record and the file
                    _record(folder, edit.number).unlink()
                    continue
                if current is None or _digest(current) != edit.after:
                    raise StateConflict(
                        f"{SOUL} was changed by hand since edit {edit.number}",
                        hint=f"its earlier text is in {_record(folder, edit.number)}",
                    )
                self._restore(edit.before)
                undone = folder / f"undone-{edit.number:06}.md"
                replace_file(undone, current.encode())
                _record(folder, edit.number).unlink()
                return edit.number
        raise NotFound("there is no edit of the soul to undo")

    def read(self) -> str:
        """Return the text in force: soul.md, or else CLAUDE.md."""
        return self._current() or read_soul(self.directory, self.butler)

    def history(self, limit: int) -> list[SoulChange]:
        """Return the newest edits with what each changed, newest first."""
        edits = sorted(_edits(self._folder), key=lambda edit: -edit.number)[:limit]
        original = _text(self.directory / FILE) or ""
        after, changes = self.read(), []
        for edit in edits:
            before = edit.before if edit.before is not None else original
            changes.append(SoulChange(edit.number, edit.by, edit.at, _diff(before, after)))
            after = before
        return changes

    @property
    def _file(self) -> Path:
        return self.directory / SOUL

    @property
    def _folder(self) -> Path:
        return self.home / FOLDER / self.butler

    @contextmanager
    def _writing(self) -> Iterator[Path]:
        try:
            make_private_folder(self._folder)
            with exclusive_lock(self._folder / ".lock"):
                yield self._folder
        except OSError as error:
            raise InternalError(
                f"the soul cannot be written: {error.strerror or error}",
                hint="check free disk space and the permissions of the butler's folder",
            ) from error

    def _current(self) -> str | None:
        return _text(self._file)

    def _with(self, text: str, replaces: str) -> str:
        base = self._current() or read_soul(self.directory, self.butler)
        found = base.count(replaces) if replaces else 0
        if found != 1:
            raise InvalidArguments(
                f"the passage to replace occurs {found} times in the soul",
                hint="give a passage that occurs exactly once, character by character",
            )
        return base.replace(replaces, text)

    def _restore(self, text: str | None) -> None:
        if text is None:
            self._file.unlink(missing_ok=True)
        else:
            replace_file(self._file, text.encode(), 0o644)


def _check(text: str) -> None:
    if not has_words(text):
        raise InvalidArguments("the soul has no text", hint="soul_undo undoes edits")
    if len(text) > MAX_SOUL or "\0" in text:
        raise InvalidArguments(f"the soul may have at most {MAX_SOUL:,} characters and no NUL")


def _record(folder: Path, number: int) -> Path:
    return folder / f"{number:06}.json"


def _edits(folder: Path) -> Iterator[SoulEdit]:
    for path in folder.glob("[0-9]*.json"):
        try:
            yield SoulEdit(**json.loads(path.read_bytes()))
        except (ValueError, TypeError, RecursionError):
            continue  # not ours, or damaged


def _text(file: Path) -> str | None:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None


def _diff(before: str, after: str) -> str:
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=2)
    return "\n".join(list(lines)[2:])[:MAX_DIFF]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
