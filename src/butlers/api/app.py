"""The dashboard's application: guard, pages, JSON API, static files, errors."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from zoneinfo import ZoneInfo

import structlog
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.staticfiles import StaticFiles

from butlers.api.changes import ChangeLog
from butlers.api.fleet import FleetClient
from butlers.api.guard import Guard
from butlers.api.json_api import router as json_router
from butlers.api.pages import (
    approvals,
    audit,
    butlers,
    chat,
    connectors,
    contacts,
    costs,
    data,
    home,
    imports,
    memory,
    messages,
    schedules,
    secrets,
    sessions,
    settings,
    skills,
)
from butlers.api.router_discovery import discover_pages
from butlers.api.sign_in import SignInStore
from butlers.api.views import Site, VaultOpener, make_templates, status_of
from butlers.domain.clock import Clock, SystemClock
from butlers.domain.errors import ButlersError, InternalError, NotFound
from butlers.secrets.vault import Vault

log = structlog.get_logger()

STATIC = Path(__file__).parent / "static"
PAGES = (
    home,
    chat,
    data,
    memory,
    approvals,
    schedules,
    messages,
    sessions,
    contacts,
    connectors,
    imports,
    butlers,
    skills,
    secrets,
    costs,
    audit,
    settings,
)


def make_app(
    home: Path,
    zone: ZoneInfo,
    clock: Clock | None = None,
    folders: Sequence[Path] = (),
    open_vault: VaultOpener | None = None,
    hosts: tuple[str, ...] = (),
) -> FastAPI:
    """Return the application for the butlers of a home. ``folders`` may add routers and panels.

    ``hosts`` are public names, which a reverse proxy on this machine serves over HTTPS.
    """
    time = clock or SystemClock()
    store = SignInStore(home)
    site = Site(
        FleetClient(home),
        store,
        time,
        zone,
        make_templates(zone, time),
        ChangeLog(home, time),
        open_vault or _no_vault,
        discover_pages(folders),
        hosts=hosts,
    )

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await site.close()

    app = FastAPI(
        title="Butlers",
        description="Everything that the dashboard shows, as JSON.",
        version="1",
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/openapi.json",
        lifespan=lifespan,
    )
    app.state.site = site
    app.add_middleware(Guard, store=store, hosts=hosts)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    app.include_router(json_router, prefix="/api")
    for name, page in site.own_pages.items():
        if page.router is not None:
            app.include_router(page.router, prefix=f"/api/{name}", tags=[name])
    for module in PAGES:
        app.include_router(module.router, include_in_schema=False)
    app.add_exception_handler(ButlersError, _on_error)
    app.add_exception_handler(404, _on_missing)
    return app


@asynccontextmanager
async def _no_vault() -> AsyncIterator[Vault]:
    raise InternalError(
        "this dashboard was started without the secrets",
        hint="`butlers up` serves it with them; `butlers secrets` works without it",
    )
    yield


async def _on_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ButlersError)
    if request.url.path.startswith("/api/"):
        return JSONResponse({"error": error_fields(error)}, status_of(error))
    return Site.of(request).render_error(request, error)


async def _on_missing(request: Request, error: Exception) -> Response:
    return await _on_error(request, NotFound("there is no such page"))


def error_fields(error: ButlersError) -> dict[str, object]:
    return {
        "code": error.code,
        "message": error.message,
        "hint": error.hint,
        "retryable": error.retryable,
    }
