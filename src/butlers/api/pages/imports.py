"""Import: upload a file, see a preview, store it with progress, take it back."""

from __future__ import annotations

import asyncio
import json
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID, uuid4

import structlog
from fastapi import APIRouter, File, Form, UploadFile
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from butlers.api.fleet import Record
from butlers.api.views import Site
from butlers.config.files import make_private_folder, replace_file
from butlers.domain.errors import ButlersError, InternalError, InvalidArguments, NotFound
from butlers.imports import (
    BATCH_TIMEOUT_S,
    KINDS,
    UNDO_TIMEOUT_S,
    ImportFile,
    ImportOptions,
    ImportPreview,
    import_calls,
    open_import,
)

router = APIRouter()
log = structlog.get_logger()

KEPT = 30  # imports that the page remembers
NOTE = "import.json"


@dataclass(slots=True)
class ImportJob:
    """An import that runs, or ran since the dashboard started."""

    total: int
    stored: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    error: ButlersError | None = None
    finished: bool = False


@router.get("/import")
async def imports(request: Request) -> Response:
    site = Site.of(request)
    past = await asyncio.to_thread(_past, _folder(site))
    return site.render(request, "import.html", kinds=KINDS, past=past)


@router.post("/import")
async def upload(
    request: Request,
    file: Annotated[UploadFile, File()],
    account: Annotated[str, Form(max_length=100)] = "",
    me: Annotated[str, Form(max_length=100)] = "",
    order: Annotated[str, Form()] = "",
) -> Response:
    """Keep the file and show what it holds; nothing is imported yet."""
    site = Site.of(request)
    if not file.filename:
        raise InvalidArguments("no file was chosen", hint="choose a file and try again")
    job_id = uuid4()
    day_first = {"day": True, "month": False}.get(order)
    options = ImportOptions(account.strip() or None, me.strip() or None, day_first)
    await asyncio.to_thread(_prune, _folder(site))
    folder = _folder(site) / str(job_id)
    try:
        path = await _keep(file, folder)
        note = await asyncio.to_thread(_preview, path, options)
    except ButlersError:
        await asyncio.to_thread(shutil.rmtree, folder, True)
        raise
    _write(folder, {**note, "options": asdict(options), "at": site.clock.now().isoformat()})
    return Response(headers={"HX-Redirect": f"/import/{job_id}"})


@router.get("/import/{job_id}")
async def preview(request: Request, job_id: UUID) -> Response:
    site = Site.of(request)
    note = await asyncio.to_thread(_read, _folder(site) / str(job_id))
    part = request.headers.get("hx-request") == "true"
    return site.render(
        request,
        "import_state.html" if part else "import_preview.html",
        job_id=job_id,
        note=note,
        job=site.imports.get(job_id),
    )


@router.post("/import/{job_id}")
async def start(request: Request, job_id: UUID) -> Response:
    """Store the rows in the background; the page shows the progress."""
    site = Site.of(request)
    folder = _folder(site) / str(job_id)
    note = await asyncio.to_thread(_read, folder)
    running = site.imports.get(job_id)
    if note["state"] == "preview" and (running is None or running.finished):
        job = site.imports[job_id] = ImportJob(total=note["rows"])
        site.track(_run(site, job, folder, note))
        site.changes.add("import", file=note["name"], butler=note["butler"], rows=note["rows"])
    return RedirectResponse(f"/import/{job_id}", 303)


@router.post("/import/{job_id}/undo")
async def undo(request: Request, job_id: UUID) -> Response:
    site = Site.of(request)
    folder = _folder(site) / str(job_id)
    note = await asyncio.to_thread(_read, folder)
    try:
        done = await site.fleet.call(
            note["butler"], "undo", timeout_s=UNDO_TIMEOUT_S, request_id=note["import_id"]
        )
    except NotFound as error:
        raise NotFound(f"{note['name']} was taken back already") from error
    removed = done.get("count", len(done["undone"]))
    _write(folder, {**note, "state": "undone", "counts": {"removed": removed}})
    site.changes.add("import undone", file=note["name"], butler=note["butler"], rows=removed)
    return Response(headers={"HX-Refresh": "true"})


async def _run(site: Site, job: ImportJob, folder: Path, note: Record) -> None:
    try:
        opened = await asyncio.to_thread(_open, folder, note)
        calls = import_calls(opened)
        while batch := await asyncio.to_thread(next, calls, None):
            arguments, rows = batch
            done = await site.fleet.call(
                note["butler"], opened.reading.tool, timeout_s=BATCH_TIMEOUT_S, **arguments
            )
            for name, count in done.items():
                job.counts[name] = job.counts.get(name, 0) + count
            job.stored += rows
        _write(folder, {**note, "state": "imported", "counts": job.counts})
        opened.path.unlink(missing_ok=True)  # its rows are stored; `undo` needs only the id
    except ButlersError as error:
        job.error = error
    except Exception as error:  # the end of a background task: the page shows it
        log.exception("import failed", file=note["name"])
        job.error = InternalError(f"{type(error).__name__}: {error}")
    finally:
        job.finished = True


def _folder(site: Site) -> Path:
    return site.fleet.home / "dashboard" / "imports"


async def _keep(file: UploadFile, folder: Path) -> Path:
    """Save the upload under its own name, which becomes the source of its rows."""
    name = Path((file.filename or "").replace("\\", "/")).name.replace("\0", "")[-100:]
    make_private_folder(folder)
    path = folder / (name if name not in ("", ".", "..", NOTE) else "file")
    content = await file.read()  # the guard limits the size of a request
    await asyncio.to_thread(path.write_bytes, content)
    return path


def _preview(path: Path, options: ImportOptions) -> Record:
    opened = open_import(path, options)
    found = ImportPreview.of(opened)
    return {
        "name": path.name,
        "state": "preview",
        **found.outline(opened),
        "first": [{key: value for key, value in row.items() if value} for row in found.first],
    }


def _open(folder: Path, note: Record) -> ImportFile:
    return open_import(folder / note["name"], ImportOptions(**note["options"]))


def _write(folder: Path, note: Record) -> None:
    replace_file(folder / NOTE, json.dumps(note, default=str).encode())


def _read(folder: Path) -> Record:
    try:
        note: dict[str, Any] = json.loads((folder / NOTE).read_bytes())
    except FileNotFoundError:
        raise NotFound("this import is not known here") from None
    return note


def _past(root: Path) -> list[Record]:
    """Return the remembered imports, newest first."""
    notes = [
        {"id": folder.name, **_read(folder)}
        for folder in (root.iterdir() if root.is_dir() else ())
        if (folder / NOTE).exists()
    ]
    return sorted(notes, key=lambda note: str(note["at"]), reverse=True)


def _prune(root: Path) -> None:
    """Forget the oldest imports, and every preview that was not imported."""
    for number, note in enumerate(_past(root)):
        if number >= KEPT or note["state"] == "preview":
            shutil.rmtree(root / note["id"], ignore_errors=True)
