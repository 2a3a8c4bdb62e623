"""The system prompt of a butler's sessions: its soul, with the files that it refers to put in place.

The soul is soul.md where that says anything, else CLAUDE.md. Without packs and without what modules
remember, it is the whole prompt, to the byte.

Two kinds of reference, and one expansion for both: ``<!-- @include path -->`` is ours; a line that is just
``@path`` is the CLIs' own, which they do not resolve in a prompt that is handed to them. A path is relative
to the file that names it and stays within the butler's own folder or the ``shared`` one beside it: one
butler does not read another's notes. What can not be put in place is left as it was written, and said in
the log. What a session noted is never a reference: below the notes line of AGENTS.md all is as it stands.
"""

from __future__ import annotations

import re
from pathlib import Path

import structlog

from butlers.config.working_copy import NOTES_FILE, NOTES_LINE
from butlers.sessions.skill_prompt import with_skills

log = structlog.get_logger()

FILE = "CLAUDE.md"
SOUL = "soul.md"
SHARED = "shared"
LONGEST = 1_000_000  # characters of one file; a prompt of megabytes is a mistake

_FENCE = re.compile(r" {0,3}(```+|~~~+)")
_REFERENCE = re.compile(r"@(?P<path>[^\s@]+)[ \t]*(?P<end>\r?\n?)")
_INCLUDE = re.compile(r"<!--[ \t]*@include[ \t]+(?P<path>[^\s>]+)[ \t]*-->")
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)


def read_system_prompt(directory: Path, name: str, *context: str, skills: str = "") -> str:
    """The prompt of the butler in this folder: its soul, what its packs say, and after a blank line each what
    modules remember."""
    return "\n\n".join([with_skills(read_soul(directory, name), skills), *context])


def read_soul(directory: Path, name: str) -> str:
    for file in (directory / SOUL, directory / FILE):
        text = _read(file)
        expanded = "" if text is None else _Expansion(directory).expand(file, text)
        if has_words(expanded):
            return expanded
    return f"You are the {name} butler."


def has_words(text: str) -> bool:
    """Whether it says anything beside comments."""
    return bool(_COMMENT.sub("", text).strip())


class _Expansion:
    def __init__(self, directory: Path) -> None:
        self._roots = (directory.resolve(), (directory.parent / SHARED).resolve())
        self._open: list[Path] = []  # the files that are being put in place, outermost first
        self._left = LONGEST  # characters that may still be put in place

    def expand(self, path: Path, text: str) -> str:
        self._open.append(path.resolve())
        parts, fence = [], None
        lines = text.splitlines(keepends=True)
        noted = _first_note(path, lines)
        for line in lines[:noted]:
            mark = _FENCE.match(line)
            if mark and (fence is None or mark[1].startswith(fence)):
                fence = None if fence else mark[1]
            # In a block of code nothing is a reference.
            parts.append(line if fence or mark else self._line(line, path.parent))
        self._open.pop()
        return "".join([*parts, *lines[noted:]])

    def _line(self, line: str, folder: Path) -> str:
        if found := _REFERENCE.fullmatch(line):
            body = self._body(found["path"], folder)
            return line if body is None else body + found["end"]
        return _INCLUDE.sub(lambda match: self._included(match, folder), line)

    def _included(self, match: re.Match[str], folder: Path) -> str:
        body = self._body(match["path"], folder)
        return match[0] if body is None else body

    def _body(self, reference: str, folder: Path) -> str | None:
        path = self._find(reference, folder)
        text = None if isinstance(path, _Refused) else _read(path)
        if isinstance(path, _Refused) or text is None:
            why = path if isinstance(path, _Refused) else "there is no such file to read"
            log.warning("reference left as it is", reference=reference, of=folder.name, why=why)
            return None
        self._left -= len(text) + 1
        return self.expand(path, text).removesuffix("\n").removesuffix("\r")

    def _find(self, reference: str, folder: Path) -> Path | _Refused:
        try:
            path = (folder / reference).resolve()
        except (OSError, RuntimeError, ValueError):
            return _Refused("it is not a path")
        if not any(path.is_relative_to(root) for root in self._roots):
            return _Refused("it leaves the butler's folder and the shared one")
        if path in self._open:
            return _Refused("it refers to itself in a circle")
        if self._left <= 0:
            return _Refused("the prompt is long enough")
        return path


def _first_note(path: Path, lines: list[str]) -> int:
    """Where the sessions' own notes begin; the end where there are none."""
    if path.name != NOTES_FILE:
        return len(lines)
    own = (number for number, line in enumerate(lines) if line.rstrip().encode() == NOTES_LINE)
    return next(own, len(lines))


class _Refused(str):
    """Why a reference is not followed."""


def _read(path: Path) -> str | None:
    try:
        with path.open(encoding="utf-8", errors="replace", newline="") as file:
            text = file.read(LONGEST + 1)
    except (OSError, ValueError):
        return None
    if len(text) > LONGEST:
        log.warning("file cut", file=path.name, characters=LONGEST)
    return text[:LONGEST]
