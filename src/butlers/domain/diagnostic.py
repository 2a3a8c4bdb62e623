"""A problem in a file that a person wrote, with its place and a hint."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Diagnostic:
    code: str
    severity: Severity
    message: str
    file: Path
    entry: str | None = None
    line: int | None = None
    column: int | None = None
    hint: str | None = None

    def __str__(self) -> str:
        place = ":".join(
            str(part) for part in (self.file, self.line, self.column) if part is not None
        )
        entry = f" [{self.entry}]" if self.entry else ""
        hint = f" (hint: {self.hint})" if self.hint else ""
        return f"{place}{entry}: {self.severity} {self.code}: {self.message}{hint}"

    def as_dict(self) -> dict[str, object]:
        return {
            "code": self.code,
            "severity": str(self.severity),
            "message": self.message,
            "file": str(self.file),
            "entry": self.entry,
            "line": self.line,
            "column": self.column,
            "hint": self.hint,
        }
