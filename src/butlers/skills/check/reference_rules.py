"""Reimplement the checks of the reference validator `skills-ref`, including its quirks."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from butlers.skills import names
from butlers.skills.formats.yaml_nodes import InvalidYaml, Node, Scalar, Table, YamlDocument, parse

_FIELDS = {"name", "description", "license", "allowed-tools", "metadata", "compatibility"}
_REFUSED = {
    "flow-style": "flow style ([a, b] and {a: b}) is rejected",
    "anchor": "anchors are rejected",
    "alias": "aliases are rejected",
    "tag": "tags are rejected",
    "duplicate-key": "duplicate keys are rejected",
}


@dataclass(frozen=True, slots=True)
class ReferenceProblem:
    """A reason to reject a skill; with ``loads`` it is accepted and a part of it is lost."""

    message: str
    loads: bool = False


def reference_problems(folder: Path) -> Iterator[ReferenceProblem]:
    """Yield the problems that skills-ref would report."""
    file = next(
        (folder / name for name in ("SKILL.md", "skill.md") if (folder / name).exists()), None
    )
    if file is None:
        yield ReferenceProblem("there is no SKILL.md or skill.md")
        return
    try:
        content = file.read_bytes().decode()
    except (OSError, UnicodeDecodeError):
        yield ReferenceProblem("the file is not UTF-8")
        return
    yield from _text_problems(content.replace("\r\n", "\n").replace("\r", "\n"), folder)


def _text_problems(text: str, folder: Path) -> Iterator[ReferenceProblem]:
    if not text.startswith("---"):
        yield ReferenceProblem("the file must begin with ---")
        return
    parts = text.split("---", 2)
    if len(parts) < 3:
        yield ReferenceProblem("the front matter is not closed with ---")
        return
    try:
        document = parse(parts[1])
    except InvalidYaml as error:
        yield ReferenceProblem(f"the front matter is not YAML: {error.message}")
        return
    refused = [
        ReferenceProblem(_REFUSED[trait]) for trait in sorted(document.traits) if trait in _REFUSED
    ]
    if refused:
        yield from refused
        return
    yield from _field_problems(document, folder)
    if parts[2].split("\n", 1)[0].strip():
        yield ReferenceProblem("the front matter ends at the first ---, even inside a value", True)


def _field_problems(document: YamlDocument, folder: Path) -> Iterator[ReferenceProblem]:
    if not isinstance(document.root, Table):
        yield ReferenceProblem("the front matter is not a map of fields")
        return
    fields = document.root.items
    if extra := sorted(set(fields) - _FIELDS):
        yield ReferenceProblem(f"unknown fields: {', '.join(extra)}"[:200])
    yield from _name_problems(fields.get("name"), folder)
    description = fields.get("description")
    if not isinstance(description, Scalar) or not description.text.strip():
        yield ReferenceProblem("description must be non-blank text")
    elif len(description.text) > names.MAX_DESCRIPTION:
        yield ReferenceProblem(f"the description has more than {names.MAX_DESCRIPTION} characters")
    compatibility = fields.get("compatibility")
    if compatibility is not None and not isinstance(compatibility, Scalar):
        yield ReferenceProblem("compatibility must be text")
    elif compatibility is not None and len(compatibility.text) > names.MAX_COMPATIBILITY:
        yield ReferenceProblem(f"compatibility has more than {names.MAX_COMPATIBILITY} characters")


def _name_problems(node: Node | None, folder: Path) -> Iterator[ReferenceProblem]:
    if not isinstance(node, Scalar) or not node.text.strip():
        yield ReferenceProblem("name must be non-blank text")
        return
    name = unicodedata.normalize("NFKC", node.text.strip())
    if len(name) > names.MAX_NAME:
        yield ReferenceProblem(f"the name has more than {names.MAX_NAME} characters")
    if name != name.lower():
        yield ReferenceProblem("the name has upper-case letters")
    if name.startswith("-") or name.endswith("-") or "--" in name:
        yield ReferenceProblem("the name starts or ends with a hyphen, or has two in a row")
    if not all(letter.isalnum() or letter == "-" for letter in name):
        yield ReferenceProblem("the name has characters other than letters, digits and hyphens")
    if name != unicodedata.normalize("NFKC", folder.name):
        yield ReferenceProblem("name and folder name differ")
