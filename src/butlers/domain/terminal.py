"""Escapes for text from outside that is shown on a terminal."""

from __future__ import annotations

import unicodedata

# Letters and marks without a shape of their own, which Unicode counts as printable.
INVISIBLE = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")


def escape_line(text: str) -> str:
    """Escape control, direction and zero-width characters and line breaks: the result is one line."""
    if is_visible(text):
        return text
    return "".join(letter if is_visible(letter) else _escape(letter) for letter in text)


def escape_text(text: str) -> str:
    """Escape the same characters in text of several lines. Line breaks and tabs stay."""
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join("\t".join(map(escape_line, line.split("\t"))) for line in lines)


def is_visible(text: str) -> bool:
    """Return whether a terminal shows the text as it is stored. Spaces of any width count as visible."""
    if text.isascii():
        return text.isprintable()
    return all(
        (letter.isprintable() and letter not in INVISIBLE) or unicodedata.category(letter) == "Zs"
        for letter in text
    )


def _escape(letter: str) -> str:
    return letter.encode("unicode_escape").decode("ascii")
