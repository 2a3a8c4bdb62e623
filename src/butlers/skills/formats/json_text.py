"""JSON of a stranger with the places of its keys and values, which `json` reads and forgets."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from butlers.config.locate import KeyPath, LineCounter, Place, Places, place_of
from butlers.skills.formats.text import HALF, whole

# Deeper than anybody writes, and far from where whoever walks through the value runs out of stack.
MAX_DEPTH = 40

_HALF_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\],:]|[^\s{}\[\],:"]+', re.DOTALL)
_CONSTANTS = ("NaN", "Infinity", "-Infinity")


class NotJson(Exception):
    """The text is not JSON, or more of it than a skill needs."""

    def __init__(self, message: str, place: Place) -> None:
        super().__init__(message)
        self.message, self.place = message, place


@dataclass(frozen=True)
class Document:
    """A value and the text it was read from; the places are looked for when first asked."""

    value: Any
    text: str = field(repr=False)
    has_duplicates: bool = False
    # Where a text has half of a character, which was replaced in the value.
    halves: tuple[Place, ...] = ()

    def place(self, *path: str | int) -> Place:
        """Of the value, else of the nearest thing around it."""
        return self._scanned.places.of(path) or Place(1, 1)

    def key_place(self, *path: str | int) -> Place:
        return self._scanned.places.of_key(path) or Place(1, 1)

    @property
    def duplicates(self) -> list[tuple[str, Place]]:
        """Every key that stood before in the same object, in the order of the text."""
        return self._scanned.duplicates if self.has_duplicates else []

    @cached_property
    def _scanned(self) -> _Scanned:
        return _scan(self.text)


def parse(text: str) -> Document:
    """The one value in the text; NotJson says where it stops being one."""
    _require_shallow(text)
    duplicated = False

    def table(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal duplicated
        read = dict(pairs)
        duplicated = duplicated or len(read) != len(pairs)
        return read

    try:
        value = json.loads(text, object_pairs_hook=table, parse_constant=_refuse)
    except json.JSONDecodeError as error:
        raise NotJson(error.msg, Place(error.lineno, error.colno)) from None
    except ValueError as error:
        raise NotJson(str(error)[:200], _unusual(text)) from None
    halves = tuple(_halves(text)) if _HALF_ESCAPE.search(text) else ()
    if halves:  # keys that differed in such a half only are now the same
        return Document(_mended(value), text, True, halves)
    return Document(value, text, duplicated)


def _halves(text: str) -> Iterator[Place]:
    lines = LineCounter(text)
    for token in _TOKEN.finditer(text):
        if _HALF_ESCAPE.search(token[0]) and HALF.search(json.loads(token[0])):
            yield lines.place(token.start())


def _mended(value: Any) -> Any:
    match value:
        case str():
            return whole(value)
        case list():
            return [_mended(item) for item in value]
        case dict():
            return {whole(key): _mended(item) for key, item in value.items()}
    return value


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _require_shallow(text: str) -> None:
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return
    depth = 0
    for token in _TOKEN.finditer(text):
        depth += (token[0] in ("[", "{")) - (token[0] in ("]", "}"))
        if depth > MAX_DEPTH:
            raise NotJson(f"nested more than {MAX_DEPTH} deep", place_of(text, token.start()))


def _unusual(text: str) -> Place:
    """Where the number stands that is none in JSON, or that has more digits than Python reads."""
    longest = sys.get_int_max_str_digits()
    for token in _TOKEN.finditer(text):
        if token[0] in _CONSTANTS or (
            longest and len(token[0]) > longest and token[0][-1].isdigit()
        ):
            return place_of(text, token.start())
    return Place(1, 1)


@dataclass(slots=True)
class _Scanned:
    places: Places
    duplicates: list[tuple[str, Place]] = field(default_factory=list)


def _scan(text: str) -> _Scanned:
    """All keys and values of a valid document; of two equal keys the place of the last."""
    values: dict[KeyPath, Place] = {}
    keys: dict[KeyPath, Place] = {}
    found = _Scanned(Places(values, keys))
    for path, is_key, place in _steps(text):
        if not is_key:
            values[path] = place
            continue
        if path in keys:
            found.duplicates.append((str(path[-1]), place))
        keys[path] = place
    return found


def _steps(text: str) -> Iterator[tuple[KeyPath, bool, Place]]:
    """Each key and value with its path. ``None`` in the path: an object that waits for a key."""
    path: list[str | int | None] = []
    lines = LineCounter(text)
    for token in _TOKEN.finditer(text):
        written = token[0]
        match written:
            case "]" | "}":
                path.pop()
            case ",":
                path[-1] = path[-1] + 1 if isinstance(path[-1], int) else None
            case ":":
                pass
            case _:
                is_key = bool(path) and path[-1] is None
                if is_key:
                    path[-1] = whole(json.loads(written))
                yield (
                    tuple(step for step in path if step is not None),
                    is_key,
                    lines.place(token.start()),
                )
                if written in ("[", "{"):
                    path.append(0 if written == "[" else None)
