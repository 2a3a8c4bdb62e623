"""Find text that a model reads and a person does not see: invisible characters, HTML comments."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterator

from butlers.config.locate import LineCounter, Place
from butlers.skills.check.text import SkillText, decoded, linear

# Bidirectional controls, zero width, tags, other invisible marks. Variation selectors and the joiner
# between emoji are allowed: people type those.
_INVISIBLE = (
    "\u00ad\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200c\u200e\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e007f"
)
_HIDDEN = re.compile(f"[{_INVISIBLE}]|(?<=[ -~])\u200d|\u200d(?=[ -~])")
_MAYBE_HIDDEN = linear(f"[{_INVISIBLE}\u200d]".encode(), unicode=True)
_FENCE = linear(rb"(?m)^[ \t>]*(?:```|~~~)")
_OPEN, _CLOSE = b"<!--", b"-->"


def hidden_characters(text: SkillText) -> Iterator[tuple[str, Place]]:
    """Yield the name and place of each run of invisible characters."""
    if text.data.isascii():
        return
    first = _MAYBE_HIDDEN.search(text.data)
    if first is None:
        return
    # From the start of its line: a joiner is judged by the characters beside it.
    start = text.data.rfind(b"\n", 0, first.start()) + 1
    rest = decoded(text.data[start:])
    lines, before = LineCounter(rest), text.place(start).line - 1
    end = -1
    for found in _HIDDEN.finditer(rest):
        if found.start() > end and not (start == found.start() == 0 and found[0] == "\ufeff"):
            letter = found[0]
            name = unicodedata.name(letter, "unnamed").title()
            place = lines.place(found.start())
            yield f"U+{ord(letter):04X} {name}", Place(before + place.line, place.column)
        end = found.end()


def html_comments(text: SkillText) -> Iterator[tuple[str, Place]]:
    """Yield the words and the place of each comment, outside of code blocks.

    A comment that is not closed hides the rest of the file.
    """
    data = text.data
    start = data.find(_OPEN)
    fences = CodeBlocks(data) if start >= 0 else None
    while start >= 0 and fences is not None:
        end = data.find(_CLOSE, start + len(_OPEN))
        words = decoded(data[start + len(_OPEN) : end if end >= 0 else len(data)][:400]).split()
        if words and start not in fences:
            yield " ".join(words), text.place(start)
        start = data.find(_OPEN, end + len(_CLOSE)) if end >= 0 else -1


class CodeBlocks:
    """Offsets of a Markdown text that are inside fenced code, which a reader sees as it is."""

    def __init__(self, data: bytes) -> None:
        self._fences = [found.start() for found in _FENCE.finditer(data)]

    def __contains__(self, offset: int) -> bool:
        return bisect_right(self._fences, offset) % 2 == 1
