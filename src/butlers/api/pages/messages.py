"""Messages: the newest ones, the whole path of one, and dead letters with replay."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from butlers.api.fleet import Record
from butlers.api.views import Site
from butlers.domain.queues import SWITCHBOARD

router = APIRouter()

PAGE = 50


@router.get("/messages")
async def messages(
    request: Request, query: str = "", before: Annotated[datetime | None, Query()] = None
) -> Response:
    site = Site.of(request)
    arguments: dict[str, Any] = {"before": before.isoformat()} if before else {}
    answer = await site.fleet.call(
        SWITCHBOARD, "messages_list", query=query, limit=PAGE, **arguments
    )
    dead, failed = await site.fleet.list_all("dead_letters_list", "dead_letters", limit=20)
    found: list[Record] = answer["messages"]
    return site.render(
        request,
        "messages.html",
        messages=found,
        query=query,
        dead=dead,
        failed=failed,
        more=found[-1]["received_at"] if len(found) == PAGE else None,
    )


@router.get("/messages/{request_id}")
async def message(request: Request, request_id: UUID) -> Response:
    site = Site.of(request)
    hops, failed = await site.fleet.list_all("request_path", "hops", request_id=str(request_id))
    ordered = sorted(hops, key=lambda hop: str(hop["at"]))
    return site.render(request, "message.html", request_id=request_id, hops=ordered, failed=failed)


@router.post("/dead/{butler}/{letter_id}/{action}")
async def decide_dead(request: Request, butler: str, letter_id: UUID, action: str) -> Response:
    tool = "dead_letters_replay" if action == "replay" else "dead_letters_discard"
    await Site.of(request).fleet.call(butler, tool, id=str(letter_id))
    return Response(headers={"HX-Refresh": "true"})
