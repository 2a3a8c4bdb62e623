"""Result of a reader, and helpers that readers share."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from butlers.domain.errors import ButlersError

Row = dict[str, Any]

MAX_TEXT = 64 * 1024 * 1024  # a larger text file is no statement or address book
MAX_VALUE = 200
MAX_NOTE = 2000


class ImportUnreadable(ButlersError):
    """The file cannot be imported."""

    code = "import_unreadable"
    default_hint = "`butlers import --help` lists the kinds of file"


@dataclass(frozen=True, slots=True)
class ImportOptions:
    account: str | None = None  # of a bank statement
    me: str | None = None  # the owner's name in a Splitwise file
    day_first: bool | None = None  # None: guessed from the dates


@dataclass(slots=True)
class Skipped:
    """Reasons why parts of a file are left out, with their numbers."""

    counts: dict[str, int] = field(default_factory=dict)

    def add(self, reason: str) -> None:
        self.counts[reason] = self.counts.get(reason, 0) + 1


@dataclass(frozen=True, slots=True)
class FileReading:
    """One readable file: the tool that takes its rows, and the rows, which may be iterated again."""

    kind: str
    butler: str
    tool: str
    argument: str  # of the tool: the list of rows
    rows: Callable[[Skipped], Iterator[Row]]
    trusted: bool  # False: the texts are written by other people
    notes: tuple[str, ...] = ()  # about guesses, for the preview


def content_key(*parts: object) -> str:
    """Return a key that is the same in each import of the same row."""
    text = "\x1f".join("" if part is None else str(part) for part in parts)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:40]


class Occurrences:
    """Numbers rows that are equal within one file, so that two equal payments stay two."""

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}

    def key(self, *parts: object) -> str:
        base = content_key(*parts)
        number = self._seen.get(base, 0)
        self._seen[base] = number + 1
        return base if number == 0 else content_key(base, number)


def short(text: str | None, limit: int = MAX_VALUE) -> str | None:
    """Return the text on one line and not too long, or None if it is empty."""
    words = " ".join((text or "").replace("\0", " ").split())
    return words[:limit] or None


def note(text: str | None) -> str | None:
    cleaned = (text or "").replace("\0", " ").strip()
    return cleaned[:MAX_NOTE] or None


def read_numeric_date(text: str, *, day_first: bool) -> date | None:
    """Return the date of "2026-03-01", "01.03.2026", "3/1/26" or "20260301"."""
    pieces = "".join(char if char.isdigit() else " " for char in text.strip()[:32]).split()
    if len(pieces) == 1 and len(pieces[0]) >= 8:
        pieces = [pieces[0][:4], pieces[0][4:6], pieces[0][6:8]]
    if len(pieces) < 3:
        return None
    first, second, third = (int(piece) for piece in pieces[:3])
    if len(pieces[0]) == 4:
        year, month, day = first, second, third
    else:
        year = third if third > 99 else 2000 + third
        month, day = (second, first) if day_first or "." in text else (first, second)
    try:
        return date(year, month, day)
    except ValueError:
        return None
