"""What a script says it does: the first line of its docstring, or of the comment that it begins with."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from butlers.skills.names import script_language

LONGEST = 200  # characters of one description
_READ = 16_384  # bytes of a script in which its description stands
_TOLD = re.compile(r"@description[ \t]+(?P<text>[^\n*]+)")
_COMMENTS = {
    "sh": re.compile(r"#+[ \t]*(?P<text>.*)"),
    "js": re.compile(r"(?://+|/?\*+)[ \t]*(?P<text>.*)"),
}
_OWN_PATH = re.compile(r"\S+\.(?:ts|js|mjs|cjs|mts|sh|bash|py)")


def describe_script(file: Path) -> str:
    """Empty where it says nothing; never raises for what is in the file."""
    try:
        with file.open("rb") as stream:
            text = stream.read(_READ).decode("utf-8", "replace")
    except OSError:
        return ""
    found = _TOLD.search(text)
    if found:
        return _line(found["text"])
    kind = script_language(file.name)
    return _line(_docstring(text) if kind == "py" else _comment(text, kind))


def _line(text: str) -> str:
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return "".join(letter for letter in first if letter.isprintable())[:LONGEST]


def _docstring(text: str) -> str:
    try:
        return ast.get_docstring(ast.parse(text)) or ""
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""


def _comment(text: str, kind: str | None) -> str:
    pattern = _COMMENTS.get(kind or "")
    for line in text.splitlines() if pattern else ():
        said = line.strip()
        if not said or said.startswith("#!"):
            continue
        found = pattern.match(said) if pattern else None
        if found is None:
            return ""
        words = found["text"].strip(" */")
        if words and not _OWN_PATH.fullmatch(words):
            return words
    return ""
