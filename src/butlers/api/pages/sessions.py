"""Sessions: those that run, those that ended, and one with every tool call."""

from __future__ import annotations

from uuid import UUID

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from butlers.api.views import Site

router = APIRouter()

LIMIT = 60


@router.get("/sessions")
async def sessions(request: Request, butler: str = "") -> Response:
    site = Site.of(request)
    names = [butler] if butler else None
    found, failed = await site.fleet.list_all("sessions_list", "sessions", names=names, limit=LIMIT)
    newest = sorted(found, key=lambda session: str(session["started_at"]), reverse=True)[:LIMIT]
    part = request.headers.get("hx-request") == "true"
    return site.render(
        request,
        "sessions_rows.html" if part else "sessions.html",
        sessions=newest,
        failed=failed,
        butlers=site.fleet.names(),
        chosen=butler,
    )


@router.get("/sessions/{butler}/{session_id}")
async def session(request: Request, butler: str, session_id: UUID) -> Response:
    site = Site.of(request)
    found = await site.fleet.call(butler, "sessions_get", session_id=str(session_id))
    return site.render(request, "session.html", butler=butler, session=found)


@router.post("/sessions/{butler}/{session_id}/stop")
async def stop(request: Request, butler: str, session_id: UUID) -> Response:
    await Site.of(request).fleet.call(butler, "sessions_stop", session_id=str(session_id))
    return Response(headers={"HX-Refresh": "true"})
