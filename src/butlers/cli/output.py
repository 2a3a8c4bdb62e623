"""Shared options and printing: JSON documents, and plain tables that are readable without color."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
RequestId = Annotated[
    str, typer.Argument(metavar="REQUEST_ID", help="The id that `butlers send` printed.")
]


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
    """Print a list as one JSON document, or the given columns as a table."""
    if as_json:
        print_json(rows)
    else:
        print_table(columns, [[_cell(row[column]) for column in columns] for row in rows])


def print_result(result: Any, message: str, as_json: bool) -> None:
    """Print the whole result as one JSON document, or the message."""
    if as_json:
        print_json(result)
    else:
        typer.echo(message)


def _cell(value: Any) -> Any:
    if isinstance(value, list):
        return ", ".join(str(item) for item in value)
    if isinstance(value, dict):
        return ", ".join(f"{count} {name}" for name, count in value.items() if count)
    return value
