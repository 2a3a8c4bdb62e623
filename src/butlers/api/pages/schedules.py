"""Schedules and reminders of all butlers: next runs, recent runs, run now, enable, edit, delete."""

from __future__ import annotations

from datetime import datetime
from itertools import islice
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Form
from starlette.requests import Request
from starlette.responses import Response

from butlers.api.fleet import Record
from butlers.api.views import Site, read_moment
from butlers.domain.errors import ButlersError
from butlers.scheduling.cron import parse

router = APIRouter()

NEXT = 5


@router.get("/schedules")
async def schedules(request: Request) -> Response:
    site = Site.of(request)
    found, failed = await site.fleet.list_all("schedule_list", "schedules", runs=5)
    for task in found:
        task["next_runs"] = _next_runs(task)
    ordered = sorted(found, key=lambda task: (task["next_run_at"] is None, task["next_run_at"]))
    return site.render(request, "schedules.html", schedules=ordered, failed=failed)


@router.post("/schedules/{butler}/{schedule_id}")
async def change(
    request: Request,
    butler: str,
    schedule_id: UUID,
    enabled: Annotated[str | None, Form()] = None,
    run_now: Annotated[str | None, Form()] = None,
    cron: Annotated[str | None, Form()] = None,
    prompt: Annotated[str | None, Form()] = None,
) -> Response:
    given: dict[str, Any] = {
        "enabled": None if enabled is None else enabled == "true",
        "run_now": True if run_now == "true" else None,
        "cron": cron,
        "prompt": prompt,
    }
    changes = {name: value for name, value in given.items() if value is not None}
    await Site.of(request).fleet.call(butler, "schedule_update", id=str(schedule_id), **changes)
    return Response(headers={"HX-Refresh": "true"})


@router.post("/schedules/{butler}/{schedule_id}/delete")
async def delete(request: Request, butler: str, schedule_id: UUID) -> Response:
    await Site.of(request).fleet.call(butler, "schedule_delete", id=str(schedule_id))
    return Response(headers={"HX-Refresh": "true"})


def _next_runs(task: Record) -> list[datetime]:
    """Return the next runs of a schedule that repeats."""
    first = read_moment(task["next_run_at"])
    if not task["enabled"] or not task["cron"] or first is None:
        return []
    try:
        later = parse(task["cron"], task["timezone"]).times_after(first)
        return [first, *islice(later, NEXT - 1)]
    except ButlersError:
        return [first]  # its expression was valid when it was planned
