"""Secrets: set and delete credentials. A value goes in and is never shown."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form
from starlette.requests import Request
from starlette.responses import Response

from butlers.api.pages.skills import missing_variables
from butlers.api.views import Site
from butlers.domain.redaction import SecretText
from butlers.secrets.sealed import NewSecret, check_name

router = APIRouter()

SHARED = "shared"


@router.get("/secrets")
async def secrets(request: Request) -> Response:
    site = Site.of(request)
    async with site.open_vault() as vault:
        entries = await vault.entries()
    answers = await site.fleet.ask_all("status")
    return site.render(
        request,
        "secrets.html",
        entries=entries,
        butlers=site.fleet.names(),
        missing=missing_variables(answers.found.values()),
        failed=dict(answers.failed),
    )


@router.post("/secrets")
async def put(
    request: Request,
    name: Annotated[str, Form()],
    value: Annotated[str, Form(min_length=1)],
    scope: Annotated[str, Form()] = SHARED,
    description: Annotated[str, Form(max_length=500)] = "",
) -> Response:
    site = Site.of(request)
    secret = NewSecret(
        scope, check_name(name), SecretText(value), None, description.strip() or None
    )
    async with site.open_vault() as vault:
        await vault.put([secret])
    site.changes.add("secret set", name=name, scope=scope)
    return Response(headers={"HX-Refresh": "true"})


@router.post("/secrets/delete")
async def delete(
    request: Request, name: Annotated[str, Form()], scope: Annotated[str, Form()]
) -> Response:
    site = Site.of(request)
    async with site.open_vault() as vault:
        await vault.delete(scope, name)
    site.changes.add("secret deleted", name=name, scope=scope)
    return Response(headers={"HX-Refresh": "true"})
