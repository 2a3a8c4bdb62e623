"""Your data: every table of records of every butler, with search, correction, undo, history and CSV."""

from __future__ import annotations

import asyncio
import csv
import io
from collections.abc import AsyncIterator
from typing import Annotated, Any
from uuid import UUID

import structlog
from fastapi import APIRouter, Form, Query
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from butlers.api.fleet import Record
from butlers.api.panels import ButlerCalls, Content, Panel
from butlers.api.views import Site, format_cell
from butlers.domain.errors import ButlersError, InternalError

router = APIRouter()
log = structlog.get_logger()

PAGE = 50
EXPORT_PAGE = 1000
SOURCE = ("id", "request_id", "session_id", "sender", "trust", "created_at", "updated_at")
HIDDEN = frozenset((*SOURCE, "words", "import_key", "merged_into"))  # not for a person to read


@router.get("/data")
async def index(request: Request, query: str = "") -> Response:
    site = Site.of(request)
    answers = await site.fleet.ask_all("record_tables")
    tables = {name: answer["tables"] for name, answer in answers.found.items() if answer["tables"]}
    found = await _search(site, tables, query) if query.strip() else []
    return site.render(
        request, "data.html", tables=tables, failed=answers.failed, query=query, found=found
    )


@router.get("/data/{butler}")
async def butler_page(request: Request, butler: str) -> Response:
    """Show the panels and tables of one butler."""
    site = Site.of(request)
    tables = (await site.fleet.call(butler, "record_tables"))["tables"]
    own = site.own_pages.get(butler)
    panels = own.panels if own else ()
    calls = ButlerCalls(site.fleet, butler)
    contents = await asyncio.gather(*(_load(panel, calls) for panel in panels))
    return site.render(
        request,
        "butler_data.html",
        butler=butler,
        tables=tables,
        error=own.error if own else None,
        panels=list(zip(panels, contents, strict=True)),
    )


async def _load(panel: Panel, calls: ButlerCalls) -> Content | ButlersError | None:
    try:
        return await panel.load(calls)
    except ButlersError as error:
        return error
    except Exception as error:  # code of a roster folder: this panel fails alone
        log.exception("panel failed", butler=calls.butler, panel=panel.title)
        return InternalError(f"{type(error).__name__}: {error}")


@router.get("/data/{butler}/{table}.csv")
async def export(request: Request, butler: str, table: str) -> Response:
    site = Site.of(request)
    await site.fleet.call(butler, "record_export", table=table, limit=1)  # raises before the answer
    return StreamingResponse(
        _csv_lines(site, butler, table),
        media_type="text/csv",
        headers={"content-disposition": f'attachment; filename="{butler}-{table}.csv"'},
    )


@router.get("/data/{butler}/{table}")
async def table_page(
    request: Request,
    butler: str,
    table: str,
    query: str = "",
    made_by: UUID | None = None,
    before: Annotated[UUID | None, Query()] = None,
) -> Response:
    site = Site.of(request)
    rows = await _rows(site, butler, table, query=query, request_id=made_by, before=before)
    part = request.headers.get("hx-target") == "rows"
    return site.render(
        request,
        "data_rows.html" if part else "data_table.html",
        butler=butler,
        table=table,
        rows=rows[:PAGE],
        columns=_columns(rows),
        query=query,
        more=rows[PAGE - 1]["id"] if len(rows) > PAGE else None,
    )


@router.get("/data/{butler}/{table}/{record_id}")
async def record_page(request: Request, butler: str, table: str, record_id: UUID) -> Response:
    site = Site.of(request)
    history = await site.fleet.call(butler, "record_history", record_id=str(record_id))
    newest = history["changes"][-1]
    return site.render(
        request,
        "record.html",
        butler=butler,
        table=table,
        record_id=record_id,
        values=newest["after"],
        changes=list(reversed(history["changes"])),
        hidden=[name for name in newest["after"] or {} if not _is_shown(name)],
    )


@router.post("/data/{butler}/{table}/{record_id}")
async def correct(
    request: Request,
    butler: str,
    table: str,
    record_id: UUID,
    column: Annotated[str, Form()],
    value: Annotated[str, Form()] = "",
) -> Response:
    site = Site.of(request)
    await site.fleet.call(
        butler,
        "record_update",
        table=table,
        record_id=str(record_id),
        values={column: value if value != "" else None},
    )
    return _reload()


@router.post("/data/{butler}/{table}/{record_id}/delete")
async def delete(request: Request, butler: str, table: str, record_id: UUID) -> Response:
    site = Site.of(request)
    await site.fleet.call(butler, "record_delete", table=table, record_id=str(record_id))
    return Response(headers={"HX-Redirect": f"/data/{butler}/{table}"})


@router.post("/data/{butler}/undo")
async def undo(request: Request, butler: str) -> Response:
    """Take back the newest change of the butler's records."""
    site = Site.of(request)
    done = await site.fleet.call(butler, "undo")
    return site.render(request, "chat_undone.html", texts=[done["text"]])


def _reload() -> Response:
    return Response(headers={"HX-Refresh": "true"})


async def _search(site: Site, tables: dict[str, Any], query: str) -> list[Record]:
    """Search every table of every butler, a few rows of each."""
    return [
        {"butler": butler, "table": one["name"], "id": row["id"], "text": _summary(row)}
        for butler, kept in tables.items()
        for one in kept
        if one["rows"]
        for row in (await _rows(site, butler, one["name"], query=query, limit=5))
    ]


async def _rows(
    site: Site,
    butler: str,
    table: str,
    *,
    query: str = "",
    request_id: UUID | None = None,
    before: UUID | None = None,
    limit: int = PAGE + 1,
) -> list[Record]:
    arguments: dict[str, Any] = {"table": table, "query": query, "limit": limit}
    if request_id:
        arguments["request_id"] = str(request_id)
    if before:
        arguments["before"] = str(before)
    answer = await site.fleet.call(butler, "record_list", **arguments)
    found: list[Record] = answer["rows"]
    return found


def _is_shown(name: str) -> bool:
    return name not in HIDDEN and not name.endswith("_id")


def _summary(row: Record) -> str:
    """Return the values of a record that a person reads, on one line."""
    shown = (format_cell(value)[:60] for name, value in row.items() if _is_shown(name) and value)
    return " · ".join(shown) or "open"


def _columns(rows: list[Record]) -> list[str]:
    """Return the columns that have a value in a row of the page."""
    names = dict.fromkeys(name for row in rows for name in row)
    return [
        name
        for name in names
        if _is_shown(name) and any(row.get(name) not in (None, "", [], {}) for row in rows)
    ]


async def _csv_lines(site: Site, butler: str, table: str) -> AsyncIterator[str]:
    after: dict[str, Any] = {}
    columns: list[str] | None = None
    while True:
        answer = await site.fleet.call(
            butler, "record_export", table=table, limit=EXPORT_PAGE, **after
        )
        rows: list[Record] = answer["rows"]
        if rows and columns is None:
            columns = list(rows[0])
            yield _csv_line(columns)
        for row in rows:
            yield _csv_line([_csv_cell(row.get(name)) for name in columns or ()])
        if len(rows) < EXPORT_PAGE:
            return
        after = {"after": rows[-1]["id"]}


def _csv_cell(value: Any) -> str:
    """Return the text of a cell. A spreadsheet must not run it as a formula."""
    text = format_cell(value)
    is_formula = text[:1] in ("=", "+", "-", "@", "\t", "\r")
    return f"'{text}" if is_formula and not _is_number(text) else text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _csv_line(cells: list[str]) -> str:
    line = io.StringIO()
    csv.writer(line).writerow(cells)
    return line.getvalue()
