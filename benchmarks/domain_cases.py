"""Rows of a domain butler and calls of its tools, for the roster benchmark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class ToolCase:
    """One call. Without an index that can serve it, its time may grow with the rows."""

    tool: str
    arguments: dict[str, Any] = field(default_factory=dict)
    served: bool = True

    @property
    def title(self) -> str:
        given = ", ".join(f"{key}={value}" for key, value in self.arguments.items())
        return f"{self.tool}({given})"


@dataclass(frozen=True, slots=True)
class DomainCase:
    """A butler's rows and calls. Each statement inserts $1 rows, of which the first hundred are recent."""

    butler: str
    rows: Sequence[str]
    calls: Sequence[ToolCase]
    tables: Sequence[str]
    once: Sequence[str] = ()


# Rows 1 to 100 lie in the last 25 days, the others more than 60 days back, one per hour.
AT = (
    "now() - CASE WHEN n <= 100 THEN n * interval '6 hours'"
    " ELSE interval '60 days' + n * interval '1 hour' END"
)
NOTE = "'note ' || md5(n::text)"
