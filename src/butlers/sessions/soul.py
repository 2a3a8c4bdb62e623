"""A butler's soul as sessions and its owner edit it: soul.md, each edit kept, so that it can be undone.

The file that a person wrote, CLAUDE.md, is never touched: soul.md stands in its place, and the last undo
takes it away again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from butlers.config.files import exclusive_lock, make_private_folder, replace_file
from butlers.domain.errors import InternalError, InvalidArguments, NotFound, StateConflict
from butlers.sessions.system_prompt import SOUL, has_words, read_soul

FOLDER = "souls"
LONGEST = 50_000  # characters


@dataclass(frozen=True, slots=True)
class Edit:
    """``before`` is None where there was no soul.md yet; ``after`` is the hash of what was written."""

    number: int
    before: str | None
    after: str
    by: str
    at: str


@dataclass(frozen=True, slots=True)
class Soul:
    directory: Path  # the butler's
    home: Path
    butler: str

    def edit(self, text: str, by: str, at: datetime, replaces: str | None = None) -> int:
        """Write it whole, or in the place of one passage of it. Says the number of this edit."""
        with self._writing() as folder:
            before = self._current()
            whole = text if replaces is None else self._with(text, replaces)
            _check(whole)
            number = max((edit.number for edit in _edits(folder)), default=0) + 1
            edit = Edit(number, before, _digest(whole), by, at.isoformat())
            replace_file(_record(folder, number), json.dumps(_as_dict(edit)).encode())
            replace_file(self._file, whole.encode(), 0o644)
        return number

    def undo(self) -> int:
        """Take the last edit back. Says its number."""
        with self._writing() as folder:
            current = self._current()
            for edit in sorted(_edits(folder), key=lambda edit: -edit.number):
                if edit.before == current:  # it was cut short before it was written
                    _record(folder, edit.number).unlink()
                    continue
                if current is None or _digest(current) != edit.after:
                    raise StateConflict(
                        f"{SOUL} was changed by hand since the edit {edit.number}",
                        hint=f"what it was before is in {_record(folder, edit.number)}",
                    )
                self._restore(edit.before)
                undone = folder / f"undone-{edit.number:06}.md"
                replace_file(undone, current.encode())
                _record(folder, edit.number).unlink()
                return edit.number
        raise NotFound("there is no edit of the soul to undo")

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
                f"the soul can not be written: {error.strerror or error}",
                hint="check free space, and that the butler's folder may be written to",
            ) from error

    def _current(self) -> str | None:
        try:
            return self._file.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return None

    def _with(self, text: str, replaces: str) -> str:
        base = self._current() or read_soul(self.directory, self.butler)
        found = base.count(replaces) if replaces else 0
        if found != 1:
            raise InvalidArguments(
                f"the passage to replace is in the soul {found} times",
                hint="name one that is there once, to the letter",
            )
        return base.replace(replaces, text)

    def _restore(self, text: str | None) -> None:
        if text is None:
            self._file.unlink(missing_ok=True)
        else:
            replace_file(self._file, text.encode(), 0o644)


def _check(text: str) -> None:
    if not has_words(text):
        raise InvalidArguments("a soul without words is none", hint="soul_undo takes edits back")
    if len(text) > LONGEST or "\0" in text:
        raise InvalidArguments(f"a soul is a text of at most {LONGEST:,} characters")


def _record(folder: Path, number: int) -> Path:
    return folder / f"{number:06}.json"


def _edits(folder: Path) -> Iterator[Edit]:
    for path in folder.glob("[0-9]*.json"):
        try:
            yield Edit(**json.loads(path.read_bytes()))
        except (ValueError, TypeError):
            continue  # not ours, or damaged: there is nothing to go back to


def _as_dict(edit: Edit) -> dict[str, Any]:
    return {
        "number": edit.number,
        "before": edit.before,
        "after": edit.after,
        "by": edit.by,
        "at": edit.at,
    }


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
