"""Audit: every change, made here, by a session or by another butler."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from butlers.api.fleet import CALLER, Record
from butlers.api.views import Site
from butlers.domain.caller import CallerKind

router = APIRouter()

SHOWN = 60
Who = Literal["dashboard", "owner", "session", "all"]


@router.get("/audit")
async def audit(request: Request, who: Annotated[Who, Query()] = "dashboard") -> Response:
    site = Site.of(request)
    wanted: dict[Who, dict[str, Any]] = {
        "dashboard": {"caller": CALLER},
        "owner": {"kind": str(CallerKind.OWNER)},
        "session": {"kind": str(CallerKind.SESSION)},
        "all": {},
    }
    found, failed = await site.fleet.list_all("audit_list", "calls", limit=SHOWN, **wanted[who])
    entries = [_entry(call) for call in found]
    if who != "session":
        entries += [
            {"ok": True, "error": None, "butler": None, "who": "dashboard", **change}
            for change in site.changes.newest(SHOWN)
        ]
    newest = sorted(entries, key=lambda one: str(one["at"]), reverse=True)[:SHOWN]
    return site.render(request, "audit.html", entries=newest, failed=failed, who=who)


def _entry(call: Record) -> Record:
    return {
        "at": call["called_at"].replace("Z", "+00:00"),
        "butler": call["butler"],
        "what": call["tool"],
        "who": call["caller"] if call["caller_kind"] == "owner" else call["caller_kind"],
        "details": call["arguments"],
        "ok": call["ok"],
        "error": call["error"],
        "session_id": call["session_id"],
        "request_id": call["request_id"],
    }
