"""Preview of an import file, and its rows as arguments of the butler's tool."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import islice
from typing import Any

from butlers.imports.files import ImportFile
from butlers.imports.model import Row

BATCH = 500
BATCH_TIMEOUT_S = 120.0
UNDO_TIMEOUT_S = 600.0
SHOWN_ROWS = 5
MAX_NAME = 150


@dataclass(slots=True)
class ImportPreview:
    """Numbers of a file, before anything is stored."""

    count: int = 0
    first: list[Row] = field(default_factory=list)
    days: tuple[str, str] | None = None
    sums: dict[str, Decimal] = field(default_factory=dict)  # by currency
    types: dict[str, int] = field(default_factory=dict)  # of measurements

    @classmethod
    def of(cls, opened: ImportFile) -> ImportPreview:
        found = cls()
        for row in opened.rows():
            found.add(row)
        return found

    def add(self, row: Row) -> None:
        self.count += 1
        if len(self.first) < SHOWN_ROWS:
            self.first.append(row)
        if day := str(row.get("day") or row.get("at") or "")[:10]:
            low, high = self.days or (day, day)
            self.days = min(low, day), max(high, day)
        if "amount" in row:
            code = str(row.get("currency") or "")
            self.sums[code] = self.sums.get(code, Decimal(0)) + Decimal(row["amount"])
        if "type" in row:
            self.types[row["type"]] = self.types.get(row["type"], 0) + 1

    def outline(self, opened: ImportFile) -> dict[str, Any]:
        """Return the preview as JSON, without rows."""
        days = self.days or (None, None)
        return {
            "kind": opened.reading.kind,
            "butler": opened.reading.butler,
            "import_id": str(opened.import_id),
            "rows": self.count,
            "first_day": days[0],
            "last_day": days[1],
            "sums": {code: f"{total:f}" for code, total in self.sums.items()},
            "types": self.types,
            "skipped": dict(opened.skipped.counts),
            "notes": list(opened.reading.notes),
        }


def import_calls(opened: ImportFile) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield the arguments of each call of the tool, and the number of rows in it."""
    reading = opened.reading
    trust = {} if reading.butler == "health" else {"trusted": reading.trusted}
    rows = opened.rows()
    while batch := list(islice(rows, BATCH)):
        arguments = {
            "import_id": str(opened.import_id),
            "source": opened.path.name[:MAX_NAME],
            reading.argument: batch,
            **trust,
        }
        yield arguments, len(batch)
