"""The problems of one file, collected so that a person sees all of them at once."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from butlers.config.locate import Place
from butlers.domain.diagnostic import Diagnostic, Severity
from butlers.skills.codes import RULES

# Of each severity. More would not help the person who mends the file, and a stranger's file could make
# thousands; counted apart, so that warnings never keep an error from being told.
MAX_FINDINGS = 100


@dataclass(slots=True)
class Findings:
    file: Path
    diagnostics: list[Diagnostic] = field(default_factory=list)
    _told: Counter[Severity] = field(init=False)

    def __post_init__(self) -> None:
        self._told = Counter(found.severity for found in self.diagnostics)

    def add(
        self,
        code: str,
        message: str,
        *,
        at: Place | None = None,
        entry: str | None = None,
        hint: str | None = None,
        file: Path | None = None,
    ) -> None:
        severity = RULES[code].severity
        if self._told[severity] >= MAX_FINDINGS:
            return
        self._told[severity] += 1
        line, column = (at.line, at.column) if at else (None, None)
        self.diagnostics.append(
            Diagnostic(
                code,
                severity,
                printable(message),
                Path(printable(str(file or self.file))),
                printable(entry) if entry else None,
                line,
                column,
                hint,
            )
        )


def printable(text: str) -> str:
    """A stranger's text for a terminal: what would steer it, or not be seen, is spelled out."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape", "replace").decode()
        for letter in text
    )


def shown(text: str, limit: int = 60) -> str:
    """A stranger's text, quoted and not longer than a line."""
    return repr(text if len(text) <= limit else text[:limit] + "…")
