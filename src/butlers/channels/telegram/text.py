"""Text with formatting for Telegram: Markdown becomes entities, and long text is split between words.

Telegram counts in UTF-16 code units. With entities, instead of a parse mode, no text can be rejected for its
markup, and a split text keeps its formatting on both sides.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

MAX_UNITS = 4096
MAX_ENTITIES = 100  # Telegram ignores the formatting after that

_FENCE = "```"
_MARKS = (("**", "bold"), ("__", "bold"), ("~~", "strikethrough"), ("*", "italic"), ("_", "italic"))
_HEADING = "#"
_LONGEST_HEADING = 6
LONGEST_LINK = 1000  # characters of a label or an address; a longer one is shown as text


@dataclass(frozen=True, slots=True)
class Entity:
    """One formatted span: offset and length in UTF-16 code units."""

    kind: str
    offset: int
    length: int
    url: str | None = None

    def as_json(self) -> dict[str, object]:
        found: dict[str, object] = {
            "type": self.kind,
            "offset": self.offset,
            "length": self.length,
        }
        return found if self.url is None else {**found, "url": self.url}


@dataclass(frozen=True, slots=True)
class FormattedText:
    text: str
    entities: tuple[Entity, ...] = ()


def units(text: str) -> int:
    """Return the length in UTF-16 code units."""
    return len(text) + sum(character > "\uffff" for character in text)


class _TextBuilder:
    def __init__(self) -> None:
        self.parts: list[str] = []
        self.length = 0
        self.entities: list[Entity] = []

    def add(self, text: str) -> None:
        self.parts.append(text)
        self.length += units(text)

    def mark(self, kind: str, start: int, url: str | None = None) -> None:
        if self.length > start:
            self.entities.append(Entity(kind, start, self.length - start, url))


def from_markdown(markdown: str) -> FormattedText:
    """Return the plain text and its entities. Unknown or unclosed markup stays as it is written."""
    built = _TextBuilder()
    blocks = markdown.split(_FENCE)
    closed = len(blocks) % 2 == 1
    for number, block in enumerate(blocks):
        if number % 2 == 0:
            _add_lines(built, block)
        elif number == len(blocks) - 1 and not closed:
            _add_lines(built, _FENCE + block)
        else:
            _add_code_block(built, block)
    text = "".join(built.parts)
    return FormattedText(text, tuple(built.entities[:MAX_ENTITIES]))


def _add_code_block(built: _TextBuilder, block: str) -> None:
    first, newline, rest = block.partition("\n")
    is_language = bool(newline) and " " not in first.strip() and len(first) < MAX_ENTITIES
    code = (rest if is_language else block).strip("\n")
    start = built.length
    built.add(code)
    built.mark("pre", start)


def _add_lines(built: _TextBuilder, block: str) -> None:
    lines = block.split("\n")
    for number, line in enumerate(lines):
        heading = len(line) - len(line.lstrip(_HEADING))
        start = built.length
        if 0 < heading <= _LONGEST_HEADING and line[heading : heading + 1] == " ":
            _add_inline(built, line[heading + 1 :])
            built.mark("bold", start)
        else:
            _add_inline(built, line)
        if number < len(lines) - 1:
            built.add("\n")


def _add_inline(built: _TextBuilder, line: str) -> None:
    """Add one line. Each mark is looked up in the rest of the line once, so the time is linear per mark."""
    position, plain = 0, 0
    open_marks: list[tuple[str, str, int]] = []  # mark, kind, start of its text
    missing: set[str] = set()  # marks that do not occur again in this line
    while position < len(line):
        found = _special(line, position, missing)
        if found is None:
            position += 1
            continue
        built.add(line[plain:position])
        position = plain = _apply(built, line, position, found, open_marks)
    built.add(line[plain:])


def _special(line: str, position: int, missing: set[str]) -> str | None:
    """Return the mark that has a meaning at this position, or None."""
    character = line[position]
    if character == "`":
        empty = line.startswith("``", position)
        return "`" if not empty and _occurs(line, "`", position + 1, missing) else None
    if character == "[":
        return "[" if line.find("](", position, position + LONGEST_LINK) > 0 else None
    for mark, _ in _MARKS:
        if line.startswith(mark, position):
            return mark if _fits(line, mark, position, missing) else None
    return None


def _occurs(line: str, what: str, start: int, missing: set[str]) -> bool:
    if what in missing:
        return False
    if line.find(what, start) < 0:
        missing.add(what)
        return False
    return True


def _fits(line: str, mark: str, position: int, missing: set[str]) -> bool:
    """Return whether a mark opens or closes something here: 3 * 4 and snake_case are text."""
    before = line[position - 1 : position]
    after = line[position + len(mark) : position + len(mark) + 1]
    opens = bool(after) and not after.isspace() and not before.isalnum()
    closes = bool(before) and not before.isspace() and not after.isalnum()
    return (opens and _occurs(line, mark, position + len(mark), missing)) or closes


def _apply(
    built: _TextBuilder, line: str, position: int, mark: str, open_marks: list[tuple[str, str, int]]
) -> int:
    """Add the construct at this position and return the position behind it."""
    if mark == "`":
        end = line.index("`", position + 1)
        start = built.length
        built.add(line[position + 1 : end])
        built.mark("code", start)
        return end + 1
    if mark == "[":
        return _add_link(built, line, position)
    kind = dict(_MARKS)[mark]
    for number, (opened, _, start) in enumerate(open_marks):
        if opened == mark:
            built.mark(kind, start)
            del open_marks[number:]
            return position + len(mark)
    if line.find(mark, position + len(mark)) < 0:  # it would only close, and nothing is open
        built.add(mark)
    else:
        open_marks.append((mark, kind, built.length))
    return position + len(mark)


def _add_link(built: _TextBuilder, line: str, position: int) -> int:
    middle = line.index("](", position)
    end = line.find(")", middle, middle + LONGEST_LINK)
    label, url = line[position + 1 : middle], line[middle + 2 : max(end, middle + 2)]
    if "[" in label or not url.startswith(("https://", "http://")):
        built.add("[")
        return position + 1
    start = built.length
    built.add(label or url)
    built.mark("text_link", start, url)
    return end + 1


def split(formatted: FormattedText, limit: int = MAX_UNITS) -> list[FormattedText]:
    """Split a text into pieces of at most ``limit`` units, between paragraphs, lines or words."""
    pieces: list[FormattedText] = []
    offset = 0
    for text in _cut(formatted.text, limit):
        stripped = text.strip()
        start = offset + units(text[: len(text) - len(text.lstrip())])
        offset += units(text)
        if stripped:
            entities = _within(formatted.entities, start, start + units(stripped))
            pieces.append(FormattedText(stripped, entities))
    return pieces


def _cut(text: str, limit: int) -> Iterator[str]:
    start = 0
    while True:
        end = _end_of_piece(text, start, limit)
        yield text[start:end]
        if end == len(text):
            return
        start = end


def _end_of_piece(text: str, start: int, limit: int) -> int:
    window = text[start : start + limit]
    fits = _characters(window, limit)
    if start + fits >= len(text):
        return len(text)
    for border in ("\n\n", "\n", " "):
        at = window.rfind(border, fits // 2, fits)
        if at > 0:
            return start + at + len(border)
    return start + fits


def _characters(text: str, limit: int) -> int:
    """Return how many characters fit into a number of UTF-16 units."""
    used = 0
    for position, character in enumerate(text):
        used += 2 if character > "\uffff" else 1
        if used > limit:
            return position
    return len(text)


def _within(entities: tuple[Entity, ...], start: int, end: int) -> tuple[Entity, ...]:
    """Return the parts of entities inside a piece, relative to its start."""
    found = []
    for entity in entities:
        first, last = max(entity.offset, start), min(entity.offset + entity.length, end)
        if first < last:
            found.append(replace(entity, offset=first - start, length=last - first))
    return tuple(found)
