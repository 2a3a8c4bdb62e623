"""What the reference validator says of a SKILL.md, quirks included, without needing it installed."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from butlers.skills import names
from butlers.skills.formats.yaml_nodes import InvalidYaml, Node, Scalar, Table, YamlDocument, parse

_FIELDS = {"name", "description", "license", "allowed-tools", "metadata", "compatibility"}
_REFUSED = {
    "flow-style": "it refuses flow style ([a, b] and {a: b})",
    "anchor": "it refuses anchors",
    "alias": "it refuses aliases",
    "tag": "it refuses tags",
    "duplicate-key": "it refuses a key that stands twice",
}


@dataclass(frozen=True, slots=True)
class Problem:
    message: str
    # True: it is accepted all the same, and something of it is lost.
    loads: bool = False


def reference_problems(folder: Path) -> Iterator[Problem]:
    file = next(
        (folder / name for name in ("SKILL.md", "skill.md") if (folder / name).exists()), None
    )
    if file is None:
        yield Problem("it looks for SKILL.md or skill.md")
        return
    try:
        content = file.read_bytes().decode()
    except (OSError, UnicodeDecodeError):
        yield Problem("it stops at bytes that are not UTF-8")
        return
    yield from _text_problems(content.replace("\r\n", "\n").replace("\r", "\n"), folder)


def _text_problems(text: str, folder: Path) -> Iterator[Problem]:
    if not text.startswith("---"):
        yield Problem("the file must begin with ---")
        return
    parts = text.split("---", 2)
    if len(parts) < 3:
        yield Problem("the front matter is not closed with ---")
        return
    try:
        document = parse(parts[1])
    except InvalidYaml as error:
        yield Problem(f"the front matter is not YAML: {error.message}")
        return
    refused = [Problem(_REFUSED[trait]) for trait in sorted(document.traits) if trait in _REFUSED]
    if refused:
        yield from refused
        return
    yield from _field_problems(document, folder)
    if parts[2].split("\n", 1)[0].strip():
        yield Problem("it ends the front matter at the first --- it meets, even in a value", True)


def _field_problems(document: YamlDocument, folder: Path) -> Iterator[Problem]:
    if not isinstance(document.root, Table):
        yield Problem("the front matter is not a list of fields")
        return
    fields = document.root.items
    if extra := sorted(set(fields) - _FIELDS):
        yield Problem(f"it knows no {', '.join(extra)}"[:200])
    yield from _name_problems(fields.get("name"), folder)
    description = fields.get("description")
    if not isinstance(description, Scalar) or not description.text.strip():
        yield Problem("description must be a text that is not blank")
    elif len(description.text) > names.MAX_DESCRIPTION:
        yield Problem(f"the description has more than {names.MAX_DESCRIPTION} characters")
    compatibility = fields.get("compatibility")
    if compatibility is not None and not isinstance(compatibility, Scalar):
        yield Problem("compatibility must be a text")
    elif compatibility is not None and len(compatibility.text) > names.MAX_COMPATIBILITY:
        yield Problem(f"compatibility has more than {names.MAX_COMPATIBILITY} characters")


def _name_problems(node: Node | None, folder: Path) -> Iterator[Problem]:
    if not isinstance(node, Scalar) or not node.text.strip():
        yield Problem("name must be a text that is not blank")
        return
    name = unicodedata.normalize("NFKC", node.text.strip())
    if len(name) > names.MAX_NAME:
        yield Problem(f"the name has more than {names.MAX_NAME} characters")
    if name != name.lower():
        yield Problem("the name is not in lower case")
    if name.startswith("-") or name.endswith("-") or "--" in name:
        yield Problem("the name has a hyphen at an end, or two in a row")
    if not all(letter.isalnum() or letter == "-" for letter in name):
        yield Problem("the name has other characters than letters, digits and hyphens")
    if name != unicodedata.normalize("NFKC", folder.name):
        yield Problem("the name is not the folder's")
