"""Find files that a SKILL.md refers to and that the skill does not have."""

from __future__ import annotations

from collections.abc import Container, Iterator
from pathlib import Path
from urllib.parse import unquote

from butlers.config.locate import Place
from butlers.skills.check.content import CodeBlocks
from butlers.skills.check.text import SkillText, decoded, linear
from butlers.skills.names import inner_path

_FOLDERS = (
    "scripts/",
    "references/",
    "assets/",
    "templates/",
    "examples/",
    "resources/",
    "context/",
)
# A Markdown link, and a path in backticks below one of the folders above.
_REFERENCE = linear(
    rb"\]\(<?([^()\s<>#?]+)(?:[#?][^()\s<>]*)?>?(?:[ \t]+[\"'][^\n()]*)?\)"
    rb"|`((?:" + b"|".join(folder.encode() for folder in _FOLDERS) + rb")[\w./-]+\.\w{1,8})`"
)
# Parts of paths that stand for something else.
_PLACEHOLDERS = ("path/to", "...", "example.", "your-", "my-", "xxx", "foo", "filename")
_PATTERN_CHARACTERS = frozenset("{}$*[]|<>:%\\")


def missing_files(
    text: SkillText, root: Path, known: Container[str]
) -> Iterator[tuple[str, Place]]:
    """Yield each missing path once, with the place of its first mention outside of code blocks."""
    seen: set[str] = set()
    blocks: CodeBlocks | None = None
    for found in _REFERENCE.finditer(text.data):
        path = _path(unquote(decoded(found[1] or found[2])))
        if path is None or path in known or path in seen or (root / path).exists():
            continue
        blocks = blocks or CodeBlocks(text.data)
        if found.start() not in blocks:
            seen.add(path)
            yield path, text.place(found.start())


def _path(written: str) -> str | None:
    """Return the path inside the skill, or None for an address, a placeholder or a pattern."""
    if not _PATTERN_CHARACTERS.isdisjoint(written):
        return None
    if any(part in written.lower() for part in _PLACEHOLDERS):
        return None
    path = inner_path(written)
    if path is None or not (path.startswith(_FOLDERS) or "." in path.rpartition("/")[2][1:]):
        return None
    return path
