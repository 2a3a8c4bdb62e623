"""Line and column of the keys and values in a TOML text, which tomllib does not report."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

KeyPath = tuple[str | int, ...]

_KEY = r"""(?:[A-Za-z0-9_-]+|"(?:\\.|[^"\\\n])*"|'[^'\n]*')"""
_KEYS = rf"{_KEY}(?:[ \t]*\.[ \t]*{_KEY})*"
_HEADER = re.compile(rf"[ \t]*(?P<open>\[\[?)[ \t]*(?P<keys>{_KEYS})[ \t]*\]\]?")
_ASSIGNMENT = re.compile(rf"[ \t]*(?P<keys>{_KEYS})[ \t]*=[ \t]*")
_ONE_KEY = re.compile(_KEY)
_BARE = re.compile(r"[A-Za-z0-9_-]+")
# Tokens of a value, in the detail that finding its end needs.
_TOKEN = re.compile(
    r""""{3}(?:\\.|[^\\])*?"{3,5}|'{3}.*?'{3,5}|"(?:\\.|[^"\\\n])*"|'[^'\n]*'|\#[^\n]*"""
    r"""|[\[\]{}\n]|[^"'\#\[\]{}\n]+|.""",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Place:
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Places:
    values: Mapping[KeyPath, Place] = field(default_factory=dict)
    keys: Mapping[KeyPath, Place] = field(default_factory=dict)

    def of(self, path: KeyPath) -> Place | None:
        """Return the place of the value, or else of the nearest value around it."""
        for length in range(len(path), -1, -1):
            if path[:length] in self.values:
                return self.values[path[:length]]
        return None

    def of_key(self, path: KeyPath) -> Place | None:
        """Return the place of the key, or else of the nearest value around it."""
        return self.keys.get(path) or self.of(path)

    def line(self, path: KeyPath) -> int | None:
        place = self.of_key(path)
        return place.line if place else None


def dotted(path: KeyPath) -> str:
    """Return the path as a person would write it: `butler.schedule[1].cron`."""
    return "".join(_spelled(path))


def _spelled(path: KeyPath) -> Iterator[str]:
    for position, key in enumerate(path):
        if isinstance(key, int):
            yield f"[{key}]"
            continue
        yield "." if position else ""
        yield key if _BARE.fullmatch(key) else f'"{key}"'


def place_of(source: str, offset: int) -> Place:
    return Place(source.count("\n", 0, offset) + 1, offset - source.rfind("\n", 0, offset))


def locate(source: str) -> Places:
    """Return the places of all headers and values of a valid TOML document."""
    values: dict[KeyPath, Place] = {}
    keys: dict[KeyPath, Place] = {}
    lines = LineCounter(source)
    for path, key, value in _statements(source.replace("\r\n", " \n")):
        key_place, value_place = lines.place(key), lines.place(value)
        for length in range(1, len(path)):  # "a.b = 1" and [a.b] are also the start of a
            values.setdefault(path[:length], key_place)
            keys.setdefault(path[:length], key_place)
        values[path], keys[path] = value_place, key_place
    return Places(values, keys)


def _statements(source: str) -> Iterator[tuple[KeyPath, int, int]]:
    table: KeyPath = ()
    counts: dict[KeyPath, int] = {}
    position = 0
    while position < len(source):
        if header := _HEADER.match(source, position):
            table = _table_path(header, counts)
            yield table, header.start("open"), header.start("open")
            position = header.end()
        elif assignment := _ASSIGNMENT.match(source, position):
            path = table + _split(assignment["keys"])
            yield path, assignment.start("keys"), assignment.end()
            position = assignment.end()
        position = _next_line(source, position)


def _table_path(header: re.Match[str], counts: dict[KeyPath, int]) -> KeyPath:
    """Return the path with list positions: the second [[a]] is (a, 1), and [a.b] after it (a, 1, b)."""
    keys = _split(header["keys"])
    path: KeyPath = ()
    for key in keys[:-1]:
        path = (*path, key)
        path = (*path, counts[path]) if path in counts else path
    path = (*path, keys[-1])
    if header["open"] == "[[":
        counts[path] = counts.get(path, -1) + 1
        return (*path, counts[path])
    return path


def _split(keys: str) -> tuple[str, ...]:
    return tuple(_unquoted(key) for key in _ONE_KEY.findall(keys))


def _unquoted(key: str) -> str:
    return str(tomllib.loads(f"key = {key}")["key"]) if key[0] in "\"'" else key


def _next_line(source: str, position: int) -> int:
    """Return the start of the next statement, ignoring line ends inside brackets and strings."""
    depth = 0
    for token in _TOKEN.finditer(source, position):
        if token[0] in ("[", "{"):
            depth += 1
        elif token[0] in ("]", "}"):
            depth -= 1
        elif token[0] == "\n" and depth <= 0:
            return token.end()
    return len(source)


class LineCounter:
    """Finds the places of increasing offsets in one pass over the text."""

    def __init__(self, source: str) -> None:
        self._source, self._seen, self._line, self._start = source, 0, 1, 0

    def place(self, offset: int) -> Place:
        self._line += self._source.count("\n", self._seen, offset)
        self._start = self._source.rfind("\n", self._seen, offset) + 1 or self._start
        self._seen = offset
        return Place(self._line, offset - self._start + 1)
