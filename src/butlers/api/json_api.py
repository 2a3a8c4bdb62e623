"""The JSON API: the same tools that the pages use, described by an OpenAPI document.

Every answer that asks several butlers names those that did not answer under ``failed``.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Body, Path, Query
from pydantic import BaseModel
from starlette.requests import Request

from butlers.api.pages.costs import totals_by
from butlers.api.views import Site
from butlers.domain.errors import ButlersError
from butlers.domain.queues import SWITCHBOARD

router = APIRouter()

CALL_S = 60.0

Name = Annotated[str, Path(pattern=r"^[a-z][a-z0-9_-]{0,62}$")]
Tool = Annotated[str, Path(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]{0,127}$")]
Limit = Annotated[int, Query(ge=1, le=500)]
Text = Annotated[str, Query(max_length=200)]


class Failure(BaseModel):
    code: str
    message: str
    hint: str | None = None
    retryable: bool = False


class Records(BaseModel):
    """Records of one or more butlers, and the butlers that did not answer."""

    data: list[dict[str, Any]]
    failed: dict[str, Failure] = {}


class ErrorAnswer(BaseModel):
    error: Failure


ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorAnswer} for status in (400, 401, 403, 404, 503)
}


def _failures(failed: dict[str, ButlersError]) -> dict[str, Failure]:
    return {
        name: Failure(
            code=error.code, message=error.message, hint=error.hint, retryable=error.retryable
        )
        for name, error in failed.items()
    }


async def _list_all(request: Request, tool: str, key: str, **arguments: Any) -> Records:
    records, failed = await Site.of(request).fleet.list_all(tool, key, **arguments)
    return Records(data=records, failed=_failures(failed))


@router.get("/butlers", responses=ERRORS)
async def list_butlers(request: Request) -> Records:
    """Return the health of every running butler."""
    answers = await Site.of(request).fleet.ask_all("status")
    return Records(data=list(answers.found.values()), failed=_failures(dict(answers.failed)))


@router.get("/butlers/{butler}/tools", responses=ERRORS)
async def list_tools(request: Request, butler: Name) -> Records:
    """Return the tools of a butler with their schemas."""
    return Records(data=await Site.of(request).fleet.client(butler).list_tools())


@router.post("/butlers/{butler}/tools/{tool}", responses=ERRORS)
async def call_tool(
    request: Request, butler: Name, tool: Tool, arguments: Annotated[dict[str, Any], Body()]
) -> Any:
    """Call a tool of a butler as the owner and return its result."""
    client = Site.of(request).fleet.client(butler)
    return {"data": await client.call(tool, arguments, timeout_s=CALL_S)}


@router.get("/sessions", responses=ERRORS)
async def list_sessions(request: Request, limit: Limit = 50, running: bool = False) -> Records:
    """Return recent sessions of all butlers."""
    return await _list_all(request, "sessions_list", "sessions", limit=limit, running=running)


@router.get("/butlers/{butler}/sessions/{session_id}", responses=ERRORS)
async def get_session(request: Request, butler: Name, session_id: UUID) -> dict[str, Any]:
    """Return one session with every tool call."""
    found = await Site.of(request).fleet.call(butler, "sessions_get", session_id=str(session_id))
    return {"data": found}


@router.get("/messages", responses=ERRORS)
async def list_messages(request: Request, query: Text = "", limit: Limit = 50) -> Records:
    """Return messages, newest first."""
    answer = await Site.of(request).fleet.call(
        SWITCHBOARD, "messages_list", query=query, limit=min(limit, 200)
    )
    return Records(data=answer["messages"])


@router.get("/messages/{request_id}/path", responses=ERRORS)
async def get_path(request: Request, request_id: UUID) -> Records:
    """Return every step of a message through the fleet."""
    return await _list_all(request, "request_path", "hops", request_id=str(request_id))


@router.get("/schedules", responses=ERRORS)
async def list_schedules(request: Request) -> Records:
    """Return the schedules and reminders of all butlers."""
    return await _list_all(request, "schedule_list", "schedules")


@router.get("/dead-letters", responses=ERRORS)
async def list_dead_letters(request: Request, limit: Limit = 50) -> Records:
    """Return work that failed for good."""
    return await _list_all(request, "dead_letters_list", "dead_letters", limit=limit)


@router.get("/records", responses=ERRORS)
async def list_tables(request: Request) -> Records:
    """Return the tables of records with their numbers of rows."""
    return await _list_all(request, "record_tables", "tables")


@router.get("/records/{butler}/{table}", responses=ERRORS)
async def list_records(
    request: Request,
    butler: Name,
    table: Name,
    query: Text = "",
    before: UUID | None = None,
    limit: Limit = 50,
) -> Records:
    """Return the rows of a table, newest first."""
    paged: dict[str, Any] = {"before": str(before)} if before else {}
    answer = await Site.of(request).fleet.call(
        butler, "record_list", table=table, query=query, limit=limit, **paged
    )
    return Records(data=answer["rows"])


@router.get("/costs", responses=ERRORS)
async def list_costs(request: Request, days: Annotated[int, Query(ge=1, le=400)] = 30) -> Records:
    """Return tokens and dollars by butler, as the key broker metered them."""
    site = Site.of(request)
    totals = totals_by(
        site.fleet.home, site.clock.now() - timedelta(days=days), lambda entry: entry.butler
    )
    return Records(
        data=[
            {
                "butler": name,
                "requests": total.requests,
                "tokens": total.tokens,
                "usd": str(total.usd),
                "unpriced_tokens": total.unpriced,
            }
            for name, total in totals.items()
        ]
    )
