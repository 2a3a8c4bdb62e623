"""The problems of one file, collected so that a person sees all of them at once."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from butlers.config.locate import KeyPath, Place, Places
from butlers.domain.diagnostic import Diagnostic, Severity

# More would not help the person who mends the file.
MAX_PROBLEMS = 100


@dataclass(slots=True)
class Report:
    file: Path
    places: Places = field(default_factory=Places)
    diagnostics: list[Diagnostic] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        return any(diagnostic.severity is Severity.ERROR for diagnostic in self.diagnostics)

    def error(
        self,
        code: str,
        message: str,
        *,
        entry: str | None = None,
        place: Place | None = None,
        hint: str | None = None,
    ) -> None:
        if len(self.diagnostics) >= MAX_PROBLEMS:
            return
        line, column = (place.line, place.column) if place else (None, None)
        self.diagnostics.append(
            Diagnostic(code, Severity.ERROR, message, self.file, entry, line, column, hint)
        )

    def warning(self, code: str, message: str) -> None:
        self.diagnostics.append(Diagnostic(code, Severity.WARNING, message, self.file))

    def at(self, path: KeyPath, entry: str | None = None) -> Spot:
        return Spot(self, path, entry)


@dataclass(frozen=True, slots=True)
class Spot:
    """A value of the file, by its keys: the place problems with it are reported at."""

    report: Report
    path: KeyPath
    entry: str | None

    def under(self, *keys: str | int) -> Spot:
        return Spot(self.report, (*self.path, *keys), self.entry)

    def error(self, code: str, message: str, *, hint: str | None = None) -> None:
        place = self.report.places.of(self.path)
        self.report.error(code, message, entry=self.entry, place=place, hint=hint)

    def unknown_keys(self, table: Iterable[str], known: Iterable[str]) -> None:
        allowed = tuple(known)
        for key in table:
            if key not in allowed:
                place, hint = self.report.places.of_key((*self.path, key)), nearest(key, allowed)
                message = f"unknown key {key[:80]!r}"
                self.report.error(
                    "reflex-unknown-key", message, entry=self.entry, place=place, hint=hint
                )


def nearest(word: str, known: Iterable[str]) -> str | None:
    options = sorted(known)
    close = difflib.get_close_matches(word[:100], options, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"known: {', '.join(options)}" if options else None
