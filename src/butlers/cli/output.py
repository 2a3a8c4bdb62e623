"""How commands print: JSON documents and plain tables, readable without colour."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import typer


def print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False, default=str))


def print_table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    cells = [[str(heading).upper() for heading in headings]]
    cells += [["" if cell is None else str(cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(headings))]
    for row in cells:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        typer.echo(line.rstrip())
