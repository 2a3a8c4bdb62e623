"""``butlers export``: every record of all butlers as files that other programs read."""

from __future__ import annotations

import asyncio
import csv
import json
import os
from collections.abc import AsyncIterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from butlers.cli.fleet import Answers, Record, ask_all, known_butlers, owner_client
from butlers.cli.output import AsJson, print_rows
from butlers.config.settings import Settings
from butlers.domain.errors import InvalidArguments
from butlers.wire.client import McpClient

PAGE = 500


class ExportFormat(StrEnum):
    CSV = "csv"
    JSON = "json"


def export(
    folder: Annotated[Path, typer.Argument(help="New or empty folder for the files.")],
    form: Annotated[
        ExportFormat, typer.Option("--format", help="Format of the files.")
    ] = ExportFormat.CSV,
    as_json: AsJson = False,
) -> None:
    """Write all your records to files, one for each table of each butler."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InvalidArguments(f"{folder} is not empty", hint="name a new folder")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    answers = asyncio.run(_export_all(folder, form))
    written = [record for records in answers.found.values() for record in records]
    print_rows(written, ("butler", "table", "rows", "file"), as_json)
    answers.exit_on_failures()


async def _export_all(folder: Path, form: ExportFormat) -> Answers[list[Record]]:
    settings = Settings.from_environ()

    async def ask(butler: str) -> list[Record]:
        async with owner_client(settings, butler) as client:
            tables = (await client.call("record_tables"))["tables"]
            return [
                await _export_table(client, butler, table["name"], folder, form)
                for table in tables
                if table["rows"]
            ]

    return await ask_all(await known_butlers(settings), ask)


async def _export_table(
    client: McpClient, butler: str, table: str, folder: Path, form: ExportFormat
) -> Record:
    target = folder / butler / f"{table}.{form}"
    target.parent.mkdir(mode=0o700, exist_ok=True)
    write = _write_csv if form is ExportFormat.CSV else _write_json
    with _private_file(target) as file:
        rows = await write(file, _pages(client, table))
    return {"butler": butler, "table": table, "rows": rows, "file": str(target)}


def _private_file(path: Path) -> TextIO:
    """Create a file that only its owner reads."""
    return os.fdopen(
        os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600),
        "w",
        encoding="utf-8",
        newline="",
    )


async def _pages(client: McpClient, table: str) -> AsyncIterator[Sequence[Record]]:
    after: str | None = None
    while True:
        asked = {"table": table, "after": after, "limit": PAGE}
        rows: list[Record] = (await client.call("record_export", asked))["rows"]
        if rows:
            yield rows
        if len(rows) < PAGE:
            return
        after = rows[-1]["id"]


async def _write_csv(file: TextIO, pages: AsyncIterator[Sequence[Record]]) -> int:
    written, writer = 0, csv.writer(file)
    async for rows in pages:
        if not written:
            writer.writerow(rows[0])
        writer.writerows([[_cell(value) for value in row.values()] for row in rows])
        written += len(rows)
    return written


def _cell(value: Any) -> Any:
    """Return lists and objects as JSON, and nothing for null."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (dict, list)) else value


async def _write_json(file: TextIO, pages: AsyncIterator[Sequence[Record]]) -> int:
    written = 0
    async for rows in pages:
        for row in rows:
            file.write(f"{',' if written else '['}\n{json.dumps(row, ensure_ascii=False)}")
            written += 1
    file.write("\n]\n" if written else "[]\n")
    return written
