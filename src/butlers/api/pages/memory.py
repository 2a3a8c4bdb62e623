"""Memory: search with an explanation, newest facts, one item with source and history, correct, forget."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Form
from starlette.requests import Request
from starlette.responses import Response

from butlers.api.fleet import Record
from butlers.api.views import Site
from butlers.domain.errors import ButlersError, NotFound

router = APIRouter()

FOUND = 20
NEWEST = 15
NEAR = 0.25  # of the best score; what scores less has nothing to do with the question
PARTS = {  # how much each part of the search adds, in a person's words
    "words": "same words",
    "words_around": "same words just before or after",
    "words_conversation": "same words in the conversation",
    "meaning": "similar meaning",
    "meaning_before": "answers something similar",
    "meaning_around": "similar meaning just before or after",
    "meaning_conversation": "conversation on this",
    "name": "names it",
    "time": "from that time",
    "asked_time": "tells a time",
    "asked_number": "tells a number",
    "asked_name": "tells a name",
    "statement": "is a statement",
    "length": "says enough",
    "confidence": "certain",
}


@router.get("/memory")
async def memory(request: Request, query: str = "") -> Response:
    site = Site.of(request)
    text = query.strip()[:2000]
    stats, failed = await _ask(site, "memory_stats")
    found, notes = await _search(site, list(stats), text) if text else ([], [])
    newest = [] if text else await _newest(site, list(stats))
    return site.render(
        request,
        "memory.html",
        query=text,
        stats=stats,
        failed=failed,
        found=found,
        notes=notes,
        newest=newest,
        parts=PARTS,
    )


@router.get("/memory/{butler}/{item_id}")
async def item(request: Request, butler: str, item_id: UUID) -> Response:
    site = Site.of(request)
    found = await site.fleet.call(butler, "memory_get", id=str(item_id))
    return site.render(request, "memory_item.html", butler=butler, item=found)


@router.post("/memory/{butler}/{item_id}/correct")
async def correct(
    request: Request, butler: str, item_id: UUID, content: Annotated[str, Form()]
) -> Response:
    site = Site.of(request)
    done = await site.fleet.call(butler, "memory_correct", id=str(item_id), content=content)
    return Response(headers={"HX-Redirect": f"/memory/{butler}/{done['id']}"})


@router.post("/memory/{butler}/{item_id}/confirm")
async def confirm(request: Request, butler: str, item_id: UUID) -> Response:
    await Site.of(request).fleet.call(butler, "memory_confirm", id=str(item_id))
    return Response(headers={"HX-Refresh": "true"})


@router.post("/memory/{butler}/{item_id}/forget")
async def forget(request: Request, butler: str, item_id: UUID) -> Response:
    await Site.of(request).fleet.call(butler, "memory_forget", ids=[str(item_id)])
    return Response(headers={"HX-Redirect": "/memory"})


async def _ask(
    site: Site, tool: str, names: list[str] | None = None, **arguments: Any
) -> tuple[dict[str, Any], dict[str, ButlersError]]:
    """Ask the butlers that have a memory. A butler without the module has no such tool."""
    answers = await site.fleet.ask_all(tool, names=names, **arguments)
    failed = {
        name: error for name, error in answers.failed.items() if not isinstance(error, NotFound)
    }
    return dict(answers.found), failed


async def _search(site: Site, names: list[str], text: str) -> tuple[list[Record], list[str]]:
    answers, failed = await _ask(
        site, "memory_search", names, query=text, trust="any", explain=True, limit=FOUND
    )
    found = [{"butler": name, **one} for name, answer in answers.items() for one in answer["items"]]
    notes = [note for answer in answers.values() for note in answer.get("notes", ())]
    notes += [f"{name} did not answer: {error.message}" for name, error in failed.items()]
    best = sorted(found, key=lambda one: -one["score"])[:FOUND]
    near = [one for one in best if one["score"] >= best[0]["score"] * NEAR]
    return near, list(dict.fromkeys(notes))


async def _newest(site: Site, names: list[str]) -> list[Record]:
    answers, _ = await _ask(site, "memory_list", names, limit=NEWEST)
    found = [{"butler": name, **one} for name, answer in answers.items() for one in answer["items"]]
    return sorted(found, key=lambda one: str(one["id"]), reverse=True)[:NEWEST]
