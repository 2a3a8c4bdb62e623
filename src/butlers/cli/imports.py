"""``butlers import``: read a file into the butlers' records, or take an import back."""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from butlers.cli.fleet import owner_client
from butlers.cli.output import AsJson, confirm, print_json, print_line, print_message
from butlers.config.settings import Settings
from butlers.domain.errors import NotFound
from butlers.imports import (
    BATCH_TIMEOUT_S,
    UNDO_TIMEOUT_S,
    ImportFile,
    ImportOptions,
    ImportPreview,
    import_calls,
    open_import,
)


def import_file(
    file: Annotated[
        Path,
        typer.Argument(
            help="Apple Health export.zip, bank CSV, OFX, QIF, vCard, ICS, Google contacts CSV or"
            " Splitwise CSV; the kind is recognized.",
            exists=True,
            dir_okay=False,
            readable=True,
        ),
    ],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    preview_only: Annotated[
        bool, typer.Option("--preview", help="Show what would be imported and stop.")
    ] = False,
    undo: Annotated[
        bool, typer.Option("--undo", help="Take the import of this file back.")
    ] = False,
    account: Annotated[
        str | None, typer.Option(help="Account of a bank statement; created if it is missing.")
    ] = None,
    me: Annotated[str | None, typer.Option(help="Your name in a Splitwise file.")] = None,
    day_first: Annotated[
        bool | None,
        typer.Option("--day-first/--month-first", help="Order of dates such as 03/04/2026."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Import a file into your records. Importing it again adds only what is new."""
    opened = open_import(file, ImportOptions(account, me, day_first))
    if undo:
        _report(asyncio.run(_undo(opened)), as_json)
        return
    preview = ImportPreview.of(opened)
    if not as_json or preview_only:
        _show(opened, preview, as_json)
    if preview_only:
        return
    if preview.count and not (yes or confirm(f"Import {preview.count} rows?")):
        raise typer.Abort
    done = asyncio.run(_import(opened, preview.count))
    _report({**done, **preview.outline(opened)} if as_json else done, as_json)


def _show(opened: ImportFile, preview: ImportPreview, as_json: bool) -> None:
    outline = preview.outline(opened)
    if as_json:
        print_json({**outline, "first_rows": preview.first})
        return
    period = f", {outline['first_day']} to {outline['last_day']}" if preview.days else ""
    print_line(f"{outline['kind']}: {preview.count} rows{period}, for {outline['butler']}")
    for code, total in preview.sums.items():
        print_line(f"  balance of all rows: {total:f} {code}".rstrip())
    for name, count in sorted(preview.types.items()):
        print_line(f"  {name}: {count}")
    for note in opened.reading.notes:
        print_line(f"  {note}")
    for row in preview.first:
        shown = (row.get(key) for key in ("day", "at", "name", "type", "value", "amount"))
        print_line("  " + "  ".join(str(v) for v in (*shown, row.get("description")) if v))
    for reason, count in opened.skipped.counts.items():
        print_message("left out", f"{count} {reason}")


async def _import(opened: ImportFile, total: int) -> dict[str, Any]:
    """Send the rows in batches, each stored in one transaction."""
    tool = opened.reading.tool
    sums: dict[str, Any] = {"added": 0, "known": 0}
    with _progress(total) as advance:
        async with owner_client(Settings.from_environ(), opened.reading.butler) as client:
            for arguments, rows in import_calls(opened):
                done = await client.call(tool, arguments, timeout_s=BATCH_TIMEOUT_S)
                for name, count in done.items():
                    sums[name] = sums.get(name, 0) + count
                advance(rows)
    again = f"butlers import {shlex.quote(str(opened.path))} --undo"
    return {**sums, "undo": again}


async def _undo(opened: ImportFile) -> dict[str, Any]:
    async with owner_client(Settings.from_environ(), opened.reading.butler) as client:
        try:
            arguments = {"request_id": str(opened.import_id)}
            done = await client.call("undo", arguments, timeout_s=UNDO_TIMEOUT_S)
        except NotFound as error:
            raise NotFound(
                f"{opened.path.name} is not imported, or was taken back already",
                hint="an edited file counts as another one",
            ) from error
    return {"removed": done.get("count", len(done["undone"]))}


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on a terminal."""
    if not sys.stderr.isatty():
        yield lambda count: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("importing", total=total)
        yield lambda count: bar.advance(task, count)


def _report(done: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(done)
        return
    counted = {key: value for key, value in done.items() if isinstance(value, int)}
    print_line(", ".join(f"{count} {key.replace('_', ' ')}" for key, count in counted.items()))
    if done.get("possible_duplicates"):
        print_line("Say “duplicate payments” to see entries that may be stored twice.")
    if "undo" in done:
        print_line(f"Take it back with: {done['undo']}")
