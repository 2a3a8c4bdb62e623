"""Contacts: who may write to the assistant, and unknown senders whose messages are held."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Form
from starlette.requests import Request
from starlette.responses import Response

from butlers.api.views import Site
from butlers.domain.queues import SWITCHBOARD

router = APIRouter()


@router.get("/contacts")
async def contacts(request: Request) -> Response:
    site = Site.of(request)
    known = (await site.fleet.call(SWITCHBOARD, "contacts_list"))["contacts"]
    waiting = (await site.fleet.call(SWITCHBOARD, "contacts_waiting"))["waiting"]
    return site.render(request, "contacts.html", contacts=known, senders=waiting)


@router.post("/senders")
async def decide_sender(
    request: Request,
    channel: Annotated[str, Form()],
    identity: Annotated[str, Form()],
    decision: Annotated[Literal["allow", "block"], Form()],
    name: Annotated[str, Form(max_length=200)] = "",
) -> Response:
    given: dict[str, Any] = {"name": name.strip()} if decision == "allow" and name.strip() else {}
    await Site.of(request).fleet.call(
        SWITCHBOARD, f"contacts_{decision}", channel=channel, identity=identity, **given
    )
    return Response(headers={"HX-Refresh": "true"})
