"""In which line of a TOML text a key stands. tomllib reads values and forgets where they were."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator

KeyPath = tuple[str | int, ...]

_STRING = r'"""(?:[^\\]|\\.)*?"{3,5}|\'\'\'.*?\'{3,5}|"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\''
_TOKEN = re.compile(rf"(?:{_STRING})|#[^\n]*|\n|.", re.DOTALL)
_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_KEY_PART = re.compile(rf"[ \t]*({_STRING}|[A-Za-z0-9_-]+)[ \t]*", re.DOTALL)
_BARE = re.compile(r"[A-Za-z0-9_-]+")


class KeyLines:
    """The lines of all keys and tables of a text that tomllib has accepted.

    What stands inside an inline table or an array has the line of the key that holds it.
    """

    def __init__(self, text: str) -> None:
        self._text = text.replace("\r\n", "\n")
        self._lines: dict[KeyPath, int] = {}
        self._tables: dict[KeyPath, int] = {}  # array of tables -> how many it has so far
        self._scan()

    def line(self, path: KeyPath) -> int | None:
        """The line of this key, or of the nearest table around it that the text has."""
        for length in range(len(path), 0, -1):
            if (line := self._lines.get(path[:length])) is not None:
                return line
        return None

    def _scan(self) -> None:
        position = 0
        table: KeyPath = ()
        while (position := _blank_end(self._text, position)) < len(self._text):
            line = self._text.count("\n", 0, position) + 1
            if self._text.startswith("[[", position):
                keys, position = _read_key(self._text, position + 2)
                table = self._open_array_table(keys, line)
                position += 2
            elif self._text.startswith("[", position):
                keys, position = _read_key(self._text, position + 1)
                table = self._open_table(keys, line)
                position += 1
            else:
                keys, position = _read_key(self._text, position)
                self._record((*table, *keys), line)
                position = _value_end(self._text, position)

    def _open_table(self, keys: tuple[str, ...], line: int) -> KeyPath:
        return self._record(self._indexed(keys), line)

    def _open_array_table(self, keys: tuple[str, ...], line: int) -> KeyPath:
        array = (*self._indexed(keys[:-1]), *keys[-1:])
        index = self._tables.get(array, 0)
        self._tables[array] = index + 1
        return self._record((*array, index), line)

    def _indexed(self, keys: tuple[str, ...]) -> KeyPath:
        """`[a.b]` after `[[a]]` belongs to the last a."""
        path: KeyPath = ()
        for key in keys:
            path = (*path, key)
            if path in self._tables:
                path = (*path, self._tables[path] - 1)
        return path

    def _record(self, path: KeyPath, line: int) -> KeyPath:
        # A table that is only implied by its children has the line of its first child.
        for length in range(1, len(path)):
            self._lines.setdefault(path[:length], line)
        self._lines[path] = line
        return path


def dotted(path: KeyPath) -> str:
    """`butler.schedule[1].cron`, the way a person would write it."""
    return "".join(_spelled(path))


def _spelled(path: KeyPath) -> Iterator[str]:
    for position, key in enumerate(path):
        if isinstance(key, int):
            yield f"[{key}]"
            continue
        yield "." if position else ""
        yield key if _BARE.fullmatch(key) else f'"{key}"'


def _blank_end(text: str, position: int) -> int:
    found = _BLANK.match(text, position)
    return found.end() if found else position


def _read_key(text: str, position: int) -> tuple[tuple[str, ...], int]:
    """The parts of the dotted key at this position, and the position after it."""
    parts: list[str] = []
    while found := _KEY_PART.match(text, position):
        parts.append(_unquoted(found[1]))
        position = found.end()
        if not text.startswith(".", position):
            break
        position += 1
    return tuple(parts), position


def _unquoted(part: str) -> str:
    return str(tomllib.loads(f"key = {part}")["key"]) if part[0] in "\"'" else part


def _value_end(text: str, position: int) -> int:
    """Where the value ends: the first line end outside of strings, arrays and inline tables."""
    depth = 0
    for token in _TOKEN.finditer(text, position):
        if token[0] == "\n" and depth == 0:
            return token.start()
        depth += (token[0] in ("[", "{")) - (token[0] in ("]", "}"))
    return len(text)
