"""Read a skill for a model: its instructions, its files, and descriptions of its scripts."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from butlers.domain.errors import SkillNotFound, SkillPathRefused
from butlers.skills.names import inner_path, script_language
from butlers.skills.skill import Pack
from butlers.skills.tree import resolve_inside, translate_os_errors, walk

MAX_CHARACTERS = 100_000  # of one file
MAX_DESCRIPTION = 200  # characters of a script's description
_MAX_LISTED = 200  # files
_HEAD = 16_384  # bytes of a script that are searched for its description
_DESCRIPTION_TAG = re.compile(r"@description[ \t]+(?P<text>[^\n*]+)")
_COMMENTS = {
    "sh": re.compile(r"#+[ \t]*(?P<text>.*)"),
    "js": re.compile(r"(?://+|/?\*+)[ \t]*(?P<text>.*)"),
}
_FILE_NAME = re.compile(r"\S+\.(?:ts|js|mjs|cjs|mts|sh|bash|py)")


def read_instructions(pack: Pack) -> str:
    """Return the body of SKILL.md, then the context files in the order of the manifest."""
    parts = [
        pack.skill.instructions,
        *(read_text(pack, path).strip() for path in pack.skill.context),
    ]
    return "\n\n".join(part for part in parts if part)


def read_text(pack: Pack, path: str) -> str:
    """Return one file of the skill as text. A long file is cut and marked as cut."""
    roots = (pack.folder, *((pack.shared,) if pack.shared else ()))
    if inner_path(path) is None:
        raise SkillPathRefused(f"{path[:80]!r} is not a path inside {pack.skill.label}")
    file = resolve_inside(pack.folder / path, *roots)
    if file is None or not file.is_file():
        raise SkillNotFound(
            f"{pack.skill.label} has no file {path!r}",
            hint=f"available: {', '.join(list_files(pack))}",
        )
    with translate_os_errors(file), file.open("rb") as stream:
        text = stream.read(4 * MAX_CHARACTERS + 4).decode("utf-8", "replace")
    if len(text) <= MAX_CHARACTERS:
        return text
    return f"{text[:MAX_CHARACTERS]}\n[cut at {MAX_CHARACTERS:,} characters]"


def list_files(pack: Pack) -> list[str]:
    """Return the paths of the files, without those whose names are not valid paths."""
    found = (entry.path for entry in walk(pack.folder).files())
    return [path for path in found if inner_path(path) == path][:_MAX_LISTED]


def describe_scripts(pack: Pack) -> dict[str, str]:
    """Return the description of each script. Declared scripts hide undeclared ones."""
    listed = pack.skill.scripts or tuple(path for path in list_files(pack) if script_language(path))
    found = {path: resolve_inside(pack.folder / path, pack.folder) for path in listed}
    return {path: describe_script(file) if file else "" for path, file in found.items()}


def describe_script(file: Path) -> str:
    """Return the first line of the script's docstring or comment; empty without one.

    A broken or unreadable script raises nothing.
    """
    try:
        with file.open("rb") as stream:
            text = stream.read(_HEAD).decode("utf-8", "replace")
    except OSError:
        return ""
    found = _DESCRIPTION_TAG.search(text)
    if found:
        return _first_line(found["text"])
    language = script_language(file.name)
    return _first_line(_docstring(text) if language == "py" else _comment(text, language))


def _first_line(text: str) -> str:
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return "".join(letter for letter in first if letter.isprintable())[:MAX_DESCRIPTION]


def _docstring(text: str) -> str:
    try:
        return ast.get_docstring(ast.parse(text)) or ""
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""


def _comment(text: str, language: str | None) -> str:
    """Return the first line of the leading comment that is more than the file's own name."""
    pattern = _COMMENTS.get(language or "")
    for line in text.splitlines() if pattern else ():
        written = line.strip()
        if not written or written.startswith("#!"):
            continue
        found = pattern.match(written) if pattern else None
        if found is None:
            return ""
        words = found["text"].strip(" */")
        if words and not _FILE_NAME.fullmatch(words):
            return words
    return ""
