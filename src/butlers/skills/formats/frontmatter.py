"""Split off front matter and read it by the first method that works.

Methods: YAML, YAML with plain values quoted, a scan of lines. Every method but the first is reported.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from butlers.config.locate import Place, place_of
from butlers.skills.findings import Findings, quoted
from butlers.skills.formats.base import SURROGATE_MESSAGE
from butlers.skills.formats.yaml_nodes import InvalidYaml, Node, Scalar, Table, YamlDocument, parse

MAX_FRONT_MATTER = 64 * 1024

_OPENING = re.compile(r"(?P<blank>(?:[ \t\r]*\n)*)---[ \t]*\r?(?:\n|\Z)")
_END = re.compile(
    r"^(?:(?:---|\.\.\.)[ \t]*\r?(?:\n|\Z)|(?P<glued>---[ \t]*(?=[#*\w])))", re.MULTILINE
)
_FIELD_LINE = re.compile(r"^[A-Za-z_][A-Za-z0-9_-]{0,63}[ \t]*:(?:[ \t]|\r?$)", re.MULTILINE)
_STOP = re.compile(r"^(?:[ \t]*\r?$|#)", re.MULTILINE)
_KEY = re.compile(r"(?P<key>[A-Za-z_][A-Za-z0-9_-]{0,63})[ \t]*:(?P<value>(?:[ \t].*)?)")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|[\x80-\x84\x86-\x9f\ufffe\uffff]")
_BLOCK = re.compile(r"[|>][+-]?[0-9]?[ \t]*(?:#.*)?$")


@dataclass(frozen=True, slots=True)
class Split:
    """Front matter and body. ``front`` is None without front matter; ``line`` is its first line."""

    front: str | None
    body: str
    line: int = 1


def split(text: str, findings: Findings) -> Split:
    opening = _OPENING.match(text)
    if opening is None:
        return Split(None, text)
    if opening["blank"]:
        findings.add(
            "frontmatter-blank-before", "the front matter is not at the top", at=Place(1, 1)
        )
    first = opening.end()
    line = text.count("\n", 0, first) + 1
    field = _FIELD_LINE.search(text, first)
    for end in _END.finditer(text, first):
        if end["glued"] is None:
            return Split(text[first : end.start()], text[end.end() :], line)
        if field is not None and field.end() <= end.start():
            findings.add(
                "frontmatter-glued",
                f"the closing --- is followed by {quoted(text[end.end() : end.end() + 20])}",
                at=place_of(text, end.start()),
                hint="put --- on a line of its own",
            )
            return Split(text[first : end.start()], text[end.end() :], line)
    return _unclosed(text, first, line, findings)


def _unclosed(text: str, first: int, line: int, findings: Findings) -> Split:
    """End unclosed front matter at the first blank line or heading, if fields precede it."""
    stop = _STOP.search(text, first)
    end = stop.start() if stop else len(text)
    if not _FIELD_LINE.search(text, first, end):
        return Split(None, text)
    findings.add(
        "frontmatter-unclosed",
        "the front matter is not closed",
        at=place_of(text, end),
        hint="put --- on a line of its own after the last field",
    )
    return Split(text[first:end], text[end:], line)


@dataclass(frozen=True, slots=True)
class Fields:
    """Top-level fields, the places of their keys, and traits.

    ``line`` is the first line of the fields; a missing field is reported there.
    """

    items: Mapping[str, Node]
    places: Mapping[str, Place]
    traits: frozenset[str] = frozenset()
    line: int = 1

    def place(self, key: str, below: str | None = None) -> Place:
        """Return the place of a field's key, or of a key below it."""
        node = self.items.get(key)
        if below is not None and isinstance(node, Table) and below in node.places:
            return _shift(node.places[below], self.line - 1)
        return self.places.get(key) or Place(self.line, 1)


def read_fields(part: Split, findings: Findings) -> Fields:
    """Read the fields by the first method that works; no fields if all fail."""
    table, traits = _read(part, findings)
    places = {key: _shift(place, part.line - 1) for key, place in table.places.items()}
    return Fields(table.items, places, traits, part.line)


def _read(part: Split, findings: Findings) -> tuple[Table, frozenset[str]]:
    front = part.front or ""
    offset = part.line - 1
    if len(front) > MAX_FRONT_MATTER:
        findings.add(
            "frontmatter-too-large",
            f"more than {MAX_FRONT_MATTER // 1024} KB of front matter",
            at=Place(part.line, 1),
        )
        return _scan(front[:MAX_FRONT_MATTER], offset, findings), frozenset({"not-yaml"})
    if bad := _CONTROL.search(front):
        findings.add(
            "skill-control-character",
            f"the control character U+{ord(bad[0]):04X} was removed",
            at=_shift(place_of(front, bad.start()), offset),
            hint="delete it",
        )
        table, traits = _read_clean(_CONTROL.sub("", front), offset, findings)
        return table, traits | {"control"}
    return _read_clean(front, offset, findings)


def _read_clean(front: str, offset: int, findings: Findings) -> tuple[Table, frozenset[str]]:
    text = front.replace("\r\n", "\n")
    try:
        return _yaml(text, offset, findings)
    except InvalidYaml as error:
        findings.add(
            "frontmatter-not-yaml",
            error.message,
            at=_shift(error.place, offset),
            hint="quote values that contain ': ' or begin with a special character",
        )
    requoted, changed = _requote(text)
    if changed:
        try:
            table, traits = _yaml(requoted, offset, findings)
        except InvalidYaml:
            pass
        else:
            for key, line in changed:
                findings.add(
                    "frontmatter-requoted",
                    f"the value of {key!r} was read as if it were quoted",
                    at=Place(line + offset, 1),
                    entry=key,
                )
            return table, traits | {"not-yaml", "requoted"}
    return _scan(text, offset, findings), frozenset({"not-yaml", "scanned"})


def _yaml(text: str, offset: int, findings: Findings) -> tuple[Table, frozenset[str]]:
    document: YamlDocument = parse(text)
    root = document.root
    if root is None or (isinstance(root, Scalar) and root.is_null):
        return Table({}, Place(1, 1)), frozenset(document.traits)
    if not isinstance(root, Table):
        raise InvalidYaml("the front matter is not a map of fields", root.place)
    for place in document.surrogates:
        findings.add("skill-half-character", SURROGATE_MESSAGE, at=_shift(place, offset))
    for key, place in document.duplicates:
        findings.add(
            "frontmatter-duplicate-key",
            f"{quoted(key)} appears twice; the last one counts",
            at=_shift(place, offset),
            entry=key[:64],
        )
    return root, frozenset(document.traits)


def _requote(text: str) -> tuple[str, list[tuple[str, int]]]:
    """Quote invalid top-level values; return the text and the changed keys with their lines."""
    changed: list[tuple[str, int]] = []
    lines = []
    for number, line in enumerate(text.split("\n"), 1):
        field = _KEY.fullmatch(line.rstrip())
        value = field["value"].strip() if field else ""
        if field is None or not value or _is_valid_value(value):
            lines.append(line)
            continue
        lines.append(f"{field['key']}: {json.dumps(_unquoted(value))}")
        changed.append((field["key"], number))
    return "\n".join(lines), changed


def _is_valid_value(value: str) -> bool:
    """Return True if the value is valid YAML on one line."""
    if _BLOCK.fullmatch(value):
        return True
    try:
        document = parse(f"key: {value}")
    except InvalidYaml:
        return False
    root = document.root
    return isinstance(root, Table) and len(root.items) == 1


def _scan(text: str, offset: int, findings: Findings) -> Table:
    """Read each `key: value` line; other lines below it continue its value."""
    table = Table({}, Place(1, 1))
    parts: dict[str, list[str]] = {}
    key = None
    for number, line in enumerate(text.split("\n"), 1):
        if field := _KEY.fullmatch(line.rstrip()):
            key = field["key"]
            value = field["value"].strip()
            parts[key] = [] if _BLOCK.fullmatch(value) else [_unquoted(value)]
            table.places[key] = Place(number, 1)
        elif key and line.strip() and not line.lstrip().startswith("#"):
            parts[key].append(line.strip())
    for key, texts in parts.items():
        joined = " ".join(part for part in texts if part)
        table.items[key] = Scalar(joined, False, table.places[key])
    findings.add(
        "frontmatter-scanned",
        f"the front matter was read line by line: {', '.join(parts) or 'no field was found'}"[:200],
        at=Place(offset + 1, 1),
    )
    return table


def _unquoted(value: str) -> str:
    quote = value[:1]
    if quote in ("'", '"') and len(value) > 1 and value.endswith(quote):
        return value[1:-1]
    return value


def _shift(place: Place | None, offset: int) -> Place:
    return Place(place.line + offset, place.column) if place else Place(offset + 1, 1)
