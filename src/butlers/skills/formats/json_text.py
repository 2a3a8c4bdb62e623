"""JSON with the line and column of each key and value."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from butlers.config.locate import KeyPath, LineCounter, Place, Places, place_of
from butlers.skills.formats.base import SURROGATE, replace_surrogates

# Far below the depth at which recursive code runs out of stack.
MAX_DEPTH = 40

_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
# Possessive, and a string that is not closed is one token: no text is read twice.
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+"?|[{}\[\],:]|[^\s{}\[\],:"]++', re.DOTALL)
_CONSTANTS = ("NaN", "Infinity", "-Infinity")


class InvalidJson(Exception):
    """The text is not JSON, or nested too deeply."""

    def __init__(self, message: str, place: Place) -> None:
        super().__init__(message)
        self.message, self.place = message, place


@dataclass(frozen=True)
class JsonDocument:
    """A value and its text; places are computed on first use."""

    value: Any
    text: str = field(repr=False)
    has_duplicates: bool = False
    # Places of strings with an unpaired surrogate, which was replaced in the value.
    surrogates: tuple[Place, ...] = ()

    def place(self, *path: str | int) -> Place:
        """Return the place of the value, else of the nearest enclosing value."""
        return self._scanned.places.of(path) or Place(1, 1)

    def key_place(self, *path: str | int) -> Place:
        return self._scanned.places.of_key(path) or Place(1, 1)

    @property
    def duplicates(self) -> list[tuple[str, Place]]:
        """Repeated keys of the same object, in the order of the text."""
        return self._scanned.duplicates if self.has_duplicates else []

    @cached_property
    def _scanned(self) -> _Scanned:
        return _scan(self.text)


def parse(text: str) -> JsonDocument:
    """Parse the text; raise InvalidJson with the place of the first error."""
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
        raise InvalidJson(error.msg, Place(error.lineno, error.colno)) from None
    except ValueError as error:
        raise InvalidJson(str(error)[:200], _unusual(text)) from None
    surrogates = tuple(_surrogate_places(text)) if _SURROGATE_ESCAPE.search(text) else ()
    if surrogates:  # keys that differed only in a surrogate are now equal
        return JsonDocument(_without_surrogates(value), text, True, surrogates)
    return JsonDocument(value, text, duplicated)


def _surrogate_places(text: str) -> Iterator[Place]:
    lines = LineCounter(text)
    for token in _TOKEN.finditer(text):
        if _SURROGATE_ESCAPE.search(token[0]) and SURROGATE.search(json.loads(token[0])):
            yield lines.place(token.start())


def _without_surrogates(value: Any) -> Any:
    match value:
        case str():
            return replace_surrogates(value)
        case list():
            return [_without_surrogates(item) for item in value]
        case dict():
            return {
                replace_surrogates(key): _without_surrogates(item) for key, item in value.items()
            }
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
            raise InvalidJson(f"nested more than {MAX_DEPTH} deep", place_of(text, token.start()))


def _unusual(text: str) -> Place:
    """Return the place of a number that JSON does not allow or that has too many digits."""
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
    """Find the places of all keys and values; of two equal keys, the last."""
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
    """Yield each key and value with its path. ``None`` in the path: an object before its key."""
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
                    path[-1] = replace_surrogates(json.loads(written))
                yield (
                    tuple(step for step in path if step is not None),
                    is_key,
                    lines.place(token.start()),
                )
                if written in ("[", "{"):
                    path.append(0 if written == "[" else None)
