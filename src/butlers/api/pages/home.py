"""Home: what happened, what waits for the owner, what is unhealthy, what it cost and what comes next."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import AwareDatetime
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from butlers.api.fleet import Record
from butlers.api.pages.approvals import pending_actions
from butlers.api.pages.costs import spent_since
from butlers.api.views import Site, read_moment
from butlers.domain.errors import ButlersError
from butlers.domain.queues import SWITCHBOARD

router = APIRouter()

NEXT_RUNS = 6
RECENT = 8
LOOKED = "butlers_looked"  # cookie with the time at which this browser last opened the page
YEAR_S = 365 * 86_400


@router.get("/health")
async def health(request: Request) -> JSONResponse:
    return JSONResponse({"name": "dashboard", "butlers": Site.of(request).fleet.names()})


@router.get("/")
async def home(request: Request) -> Response:
    site = Site.of(request)
    since = read_moment(request.cookies.get(LOOKED))
    answer = site.render(request, "home.html", since=since, **await _content(site))
    answer.set_cookie(
        LOOKED, site.clock.now().isoformat(), max_age=YEAR_S, httponly=True, samesite="strict"
    )
    return answer


@router.get("/home/live")
async def home_live(
    request: Request, since: Annotated[AwareDatetime | None, Query()] = None
) -> Response:
    site = Site.of(request)
    return site.render(request, "home_live.html", since=since, **await _content(site))


async def _content(site: Site) -> dict[str, Any]:
    """Ask for each part on its own, so that one that fails is shown as failed."""
    parts = {
        "statuses": _statuses(site),
        "messages": _messages(site),
        "approvals": _approvals(site),
        "senders": _senders(site),
        "dead": _dead(site),
        "runs": _next_runs(site),
    }
    answers = await asyncio.gather(*parts.values(), return_exceptions=True)
    content: dict[str, Any] = {}
    for name, answer in zip(parts, answers, strict=True):
        if isinstance(answer, BaseException) and not isinstance(answer, ButlersError):
            raise answer
        content[name] = answer
    now = site.clock.now()
    content["spent_today"] = spent_since(site.fleet.home, now - timedelta(days=1))
    content["spent_month"] = spent_since(site.fleet.home, now - timedelta(days=30))
    return content


async def _statuses(site: Site) -> list[Record]:
    answers = await site.fleet.ask_all("status")
    failed = [
        {"name": name, "health": "unreachable", "diagnostics": [{"message": error.message}]}
        for name, error in answers.failed.items()
    ]
    return [*answers.found.values(), *failed]


async def _messages(site: Site) -> list[Record]:
    answer = await site.fleet.call(SWITCHBOARD, "messages_list", limit=RECENT)
    found: list[Record] = answer["messages"]
    return found


async def _approvals(site: Site) -> list[Record]:
    actions, failed = await pending_actions(site)
    for error in failed.values():
        raise error
    return actions


async def _senders(site: Site) -> list[Record]:
    found: list[Record] = (await site.fleet.call(SWITCHBOARD, "contacts_waiting"))["waiting"]
    return found


async def _dead(site: Site) -> list[Record]:
    records, failed = await site.fleet.list_all("dead_letters_list", "dead_letters", limit=20)
    for error in failed.values():
        raise error
    return records


async def _next_runs(site: Site) -> list[Record]:
    tasks, failed = await site.fleet.list_all("schedule_list", "schedules")
    for error in failed.values():
        raise error
    due = [task for task in tasks if task["enabled"] and read_moment(task["next_run_at"])]
    return sorted(due, key=lambda task: str(task["next_run_at"]))[:NEXT_RUNS]
