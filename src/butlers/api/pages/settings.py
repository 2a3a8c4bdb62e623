"""Sign-in and sign-out, API tokens, and the page that shows every component."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from butlers.api.guard import COOKIE, is_public, session_secret
from butlers.api.sign_in import SESSION_S
from butlers.api.views import Site

router = APIRouter()


@router.get("/sign-in")
async def sign_in_page(request: Request) -> Response:
    return _sign_in_page(request)


@router.post("/sign-in")
async def sign_in(request: Request, link: Annotated[str, Form()] = "") -> Response:
    site = Site.of(request)
    session = site.store.use_link(link)
    if session is None:
        return _sign_in_page(request, failed=True, status_code=403)
    site.changes.add("signed in", browser=request.headers.get("user-agent", "")[:200])
    answer = RedirectResponse("/", 303)
    answer.set_cookie(
        COOKIE,
        session,
        max_age=SESSION_S,
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return answer


def _sign_in_page(request: Request, *, failed: bool = False, status_code: int = 200) -> Response:
    site = Site.of(request)
    return site.render(
        request,
        "sign_in.html",
        failed=failed,
        public=is_public(request, site.hosts),
        status_code=status_code,
    )


@router.post("/sign-out")
async def sign_out(request: Request, everywhere: Annotated[bool, Form()] = False) -> Response:
    site, secret = Site.of(request), session_secret(request)
    if everywhere:
        site.store.sign_out_everywhere()
        site.changes.add("signed out everywhere")
    elif secret:
        site.store.sign_out(secret)
    answer = Response(headers={"HX-Redirect": "/sign-in"})
    answer.delete_cookie(COOKIE)
    return answer


@router.get("/settings")
async def settings(request: Request) -> Response:
    site = Site.of(request)
    return site.render(
        request,
        "settings.html",
        tokens=site.store.tokens(),
        zone=site.zone.key,
        hosts=site.hosts,
    )


@router.get("/settings/public")
async def public_name(request: Request) -> Response:
    """Say what a public name means, before and after it is configured."""
    return Site.of(request).render(request, "public_name.html", hosts=Site.of(request).hosts)


@router.get("/more")
async def more(request: Request) -> Response:
    """List the pages that have no place in the navigation of a phone."""
    return Site.of(request).render(request, "more.html")


@router.get("/design")
async def design(request: Request) -> Response:
    return Site.of(request).render(request, "design.html")
