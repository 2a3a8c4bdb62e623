"""Positions in a reflex file, where problems are reported."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

from butlers.config.locate import KeyPath, Places
from butlers.skills.findings import Findings


@dataclass(frozen=True, slots=True)
class FilePosition:
    """A value of the file, named by its keys."""

    findings: Findings
    places: Places
    path: KeyPath = ()
    entry: str | None = None

    def under(self, *keys: str | int) -> FilePosition:
        return FilePosition(self.findings, self.places, (*self.path, *keys), self.entry)

    def named(self, entry: str) -> FilePosition:
        return FilePosition(self.findings, self.places, self.path, entry)

    def error(self, code: str, message: str, *, hint: str | None = None) -> None:
        place = self.places.of(self.path)
        self.findings.add(code, message, entry=self.entry, at=place, hint=hint)

    def unknown_keys(self, table: Iterable[str], known: Iterable[str]) -> None:
        allowed = tuple(known)
        for key in table:
            if key not in allowed:
                place, hint = self.places.of_key((*self.path, key)), nearest(key, allowed)
                message = f"unknown key {key[:80]!r}"
                self.findings.add(
                    "reflex-unknown-key", message, entry=self.entry, at=place, hint=hint
                )


def nearest(word: str, known: Iterable[str]) -> str | None:
    options = sorted(known)
    close = difflib.get_close_matches(word[:100], options, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"known: {', '.join(options)}" if options else None
