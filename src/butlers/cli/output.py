"""Shared options, and the only functions that print: lines, texts, tables and JSON documents.

Text from outside reaches the terminal escaped. No other file of the command line prints by itself.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from butlers.domain.terminal import escape_line, escape_text, is_visible

if TYPE_CHECKING:
    from rich.text import Text

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
RequestId = Annotated[
    str, typer.Argument(metavar="REQUEST_ID", help="The id that `butlers send` printed.")
]


def print_line(text: object, *, err: bool = False) -> None:
    """Print one line. Line breaks and control characters in it are escaped."""
    typer.echo(escape_line(str(text)), err=err)


def print_text(text: object, *, indent: int = 0, err: bool = False) -> None:
    """Print text that may have several lines, such as a reply, with an indent from the second line on."""
    typer.echo(escape_text(str(text)).replace("\n", "\n" + " " * indent), err=err)


def print_message(label: str, text: str) -> None:
    """Print an error, warning or hint to stderr. Further lines are indented, so none poses as a label."""
    print_text(f"{label}: {text}", indent=2, err=True)


def confirm(question: str) -> bool:
    """Ask on stderr and return the answer."""
    return typer.confirm(escape_line(question), err=True)


def rich_cell(text: str) -> Text:
    """Return a cell of a rich table: escaped, and without markup."""
    from rich.text import Text

    return Text(escape_line(text))


def ask_number(question: str, default: int) -> int:
    """Ask for a number on the terminal."""
    return int(typer.prompt(escape_line(question), default=default, err=True))


def ask_words(question: str) -> list[str]:
    """Ask for words on the terminal, separated by blanks or commas."""
    return str(typer.prompt(escape_line(question), err=True)).replace(",", " ").split()


def print_json(value: Any) -> None:
    """Print one JSON document, in which characters that a terminal does not show are escaped."""
    document = json.dumps(value, indent=2, ensure_ascii=False, default=str)
    typer.echo("\n".join(map(_escape_json, document.split("\n"))))


def print_table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    cells = [[str(heading).upper() for heading in headings]]
    cells += [["" if cell is None else escape_line(str(cell)) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(headings))]
    for row in cells:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print_line(line.rstrip())


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
        print_line(message)


def _cell(value: Any) -> Any:
    if isinstance(value, list):
        return ", ".join(str(item) for item in value)
    if isinstance(value, dict):
        return ", ".join(f"{count} {name}" for name, count in value.items() if count)
    return value


def _escape_json(line: str) -> str:
    if is_visible(line):
        return line
    return "".join(one if is_visible(one) else json.dumps(one)[1:-1] for one in line)
