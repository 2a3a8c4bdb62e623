"""YAML as a tree of strings with places, built from parser events.

PyYAML's composers recurse without a limit (the C one crashes the process on deep nesting) and turn
`1.10` into a number. Events are flat, so depth, size and aliases are limited here.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from butlers.config.locate import Place
from butlers.skills.formats.base import replace_surrogates

MAX_DEPTH = 40
MAX_EVENTS = 20_000
MAX_ALIASES = 100

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,29})", re.ASCII)
_FLOAT = re.compile(r"[-+]?[0-9]+\.[0-9]*(?:[eE][-+]?[0-9]{1,3})?", re.ASCII)
_LINE_END = re.compile("\n")
_WORDS = {"true": True, "false": False, "null": None, "~": None, "": None}


class InvalidYaml(Exception):
    """The text is not YAML, or uses more of YAML than front matter may."""

    def __init__(self, message: str, place: Place | None = None) -> None:
        super().__init__(message)
        self.message, self.place = message, place


@dataclass(frozen=True, slots=True)
class Scalar:
    text: str
    plain: bool
    place: Place

    @property
    def is_null(self) -> bool:
        return self.plain and self.text in ("", "~", "null", "Null", "NULL")


@dataclass(frozen=True, slots=True)
class Sequence:
    items: tuple[Node, ...]
    place: Place


@dataclass(frozen=True, slots=True)
class Table:
    items: dict[str, Node]
    place: Place
    places: dict[str, Place] = field(default_factory=dict)


Node = Scalar | Sequence | Table


@dataclass(slots=True)
class YamlDocument:
    root: Node | None
    duplicates: list[tuple[str, Place]] = field(default_factory=list)
    traits: set[str] = field(default_factory=set)
    # Places of replaced unpaired surrogates; one of PyYAML's two loaders accepts such escapes.
    surrogates: list[Place] = field(default_factory=list)


def parse(text: str) -> YamlDocument:
    """Parse one document; raise InvalidYaml with the place of the first error."""
    builder = _Builder(text)
    try:
        return builder.document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise InvalidYaml(error.problem or "not valid YAML", builder.place(mark)) from None
    except yaml.YAMLError as error:
        raise InvalidYaml(str(error).splitlines()[0] if str(error) else "not valid YAML") from None


def value_of(node: Node) -> Any:
    """Return a node as a JSON value: unquoted numbers and booleans get their type."""
    match node:
        case Scalar(text=text, plain=plain):
            return _typed(text) if plain else text
        case Sequence(items=items):
            return [value_of(item) for item in items]
        case Table(items=table):
            return {key: value_of(item) for key, item in table.items()}


def _typed(text: str) -> str | int | float | bool | None:
    if text.lower() in _WORDS and text in (text.lower(), text.upper(), text.capitalize()):
        return _WORDS[text.lower()]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text) and math.isfinite(number := float(text)):
        return number
    return text


class _Builder:
    def __init__(self, text: str) -> None:
        self._ends = [end.start() for end in _LINE_END.finditer(text)]
        self._take: Callable[[], Any] = _LOADER(text).get_event
        self._count = 0
        self._aliases = 0
        self._anchors: dict[str, Scalar] = {}
        self._found = YamlDocument(None)

    def document(self) -> YamlDocument:
        self._next()  # stream start
        if isinstance(self._next(), yaml.DocumentStartEvent):
            self._found.root = self._node(self._next(), 0)
            self._next()  # document end
            if isinstance(after := self._next(), yaml.DocumentStartEvent):
                raise InvalidYaml("there is a second document", self.place(after.start_mark))
        return self._found

    def place(self, mark: Any) -> Place:
        """Return the place by offset: YAML also counts line ends that editors do not."""
        before = bisect_left(self._ends, mark.index)
        return Place(before + 1, mark.index - (self._ends[before - 1] if before else -1))

    def _next(self) -> Any:
        self._count += 1
        if self._count > MAX_EVENTS:
            raise InvalidYaml(f"there are more than {MAX_EVENTS} values")
        return self._take()

    def _node(self, event: Any, depth: int) -> Node:
        place = self.place(event.start_mark)
        if depth > MAX_DEPTH:
            raise InvalidYaml(f"nested more than {MAX_DEPTH} deep", place)
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event.anchor, place)
        if event.anchor or event.tag:
            self._note_traits(event)
        if isinstance(event, yaml.ScalarEvent):
            scalar = Scalar(replace_surrogates(event.value), not event.style, place)
            if scalar.text != event.value:
                self._found.surrogates.append(place)
            if event.anchor:
                self._anchors[event.anchor] = scalar
            return scalar
        if event.flow_style:
            self._found.traits.add("flow-style")
        if isinstance(event, yaml.SequenceStartEvent):
            return Sequence(tuple(self._items(depth)), place)
        return self._table(place, depth)

    def _items(self, depth: int) -> Iterator[Node]:
        while not isinstance(event := self._next(), yaml.SequenceEndEvent):
            yield self._node(event, depth + 1)

    def _table(self, place: Place, depth: int) -> Table:
        table = Table({}, place)
        while not isinstance(event := self._next(), yaml.MappingEndEvent):
            key = self._node(event, depth + 1)
            if not isinstance(key, Scalar):
                raise InvalidYaml("a key is not a string", key.place)
            if key.text in table.items:
                self._found.duplicates.append((key.text, key.place))
                self._found.traits.add("duplicate-key")
            table.items[key.text] = self._node(self._next(), depth + 1)
            table.places[key.text] = key.place
        return table

    def _alias(self, anchor: str | None, place: Place) -> Scalar:
        self._found.traits.add("alias")
        self._aliases += 1
        # An alias of a list of aliases grows exponentially; an alias of a string is harmless.
        if anchor is None or anchor not in self._anchors or self._aliases > MAX_ALIASES:
            raise InvalidYaml("an alias of something that is not a string", place)
        return self._anchors[anchor]

    def _note_traits(self, event: Any) -> None:
        if event.anchor:
            self._found.traits.add("anchor")
        if event.tag and event.tag != "!":
            self._found.traits.add("tag")
