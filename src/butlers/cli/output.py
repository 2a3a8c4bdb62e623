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


def print_rows(rows: Sequence[dict[str, Any]], columns: Sequence[str], as_json: bool) -> None:
    """A list as one document, or some columns of it as a table."""
    if as_json:
        print_json(rows)
    else:
        print_table(columns, [[_cell(row[column]) for column in columns] for row in rows])


def say(done: Any, words: str, as_json: bool) -> None:
    """What was done: the whole of it as one document, or in words."""
    if as_json:
        print_json(done)
    else:
        typer.echo(words)


def _cell(value: Any) -> Any:
    if isinstance(value, list):
        return ", ".join(str(item) for item in value)
    if isinstance(value, dict):
        return ", ".join(f"{count} {name}" for name, count in value.items() if count)
    return value
