"""Butlers: health, modules with toggles, skills, tools, and the soul with its history."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form
from starlette.requests import Request
from starlette.responses import Response

from butlers.api.views import Site

router = APIRouter()

EDITS = 20  # newest edits of the soul that are shown


@router.get("/butlers")
async def butlers(request: Request) -> Response:
    site = Site.of(request)
    answers = await site.fleet.ask_all("status")
    return site.render(
        request, "butlers.html", statuses=list(answers.found.values()), failed=answers.failed
    )


@router.get("/butlers/{name}")
async def butler(request: Request, name: str) -> Response:
    site = Site.of(request)
    status = await site.fleet.call(name, "status")
    states = await site.fleet.call(name, "module.states")
    skills = await site.fleet.call(name, "skill_list")
    tools = await site.fleet.client(name).list_tools()
    return site.render(
        request,
        "butler.html",
        name=name,
        status=status,
        modules=states,
        skills=skills,
        tools=sorted(tools, key=lambda tool: str(tool["name"])),
    )


@router.post("/butlers/{name}/modules/{module}")
async def toggle(
    request: Request, name: str, module: str, enabled: Annotated[bool, Form()]
) -> Response:
    await Site.of(request).fleet.call(name, "module.set_enabled", name=module, enabled=enabled)
    return Response(headers={"HX-Refresh": "true"})


@router.get("/butlers/{name}/soul")
async def soul(request: Request, name: str) -> Response:
    site = Site.of(request)
    found = await site.fleet.call(name, "soul_show", edits=EDITS)
    return site.render(request, "soul.html", name=name, soul=found)


@router.post("/butlers/{name}/soul")
async def edit_soul(request: Request, name: str, text: Annotated[str, Form()]) -> Response:
    """Replace the soul. A browser sends line ends as CRLF."""
    whole = text.replace("\r\n", "\n")
    await Site.of(request).fleet.call(name, "soul_edit", text=whole)
    return Response(headers={"HX-Refresh": "true"})


@router.post("/butlers/{name}/soul/undo")
async def undo_soul(request: Request, name: str) -> Response:
    await Site.of(request).fleet.call(name, "soul_undo")
    return Response(headers={"HX-Refresh": "true"})
