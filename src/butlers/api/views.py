"""Rendering of pages: templates, and filters for times, numbers and ids."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID
from zoneinfo import ZoneInfo

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse

from butlers.api.changes import ChangeLog
from butlers.api.fleet import FleetClient
from butlers.api.router_discovery import ButlerPage
from butlers.api.sign_in import SignInStore
from butlers.domain.clock import Clock
from butlers.domain.errors import ButlersError

if TYPE_CHECKING:
    from butlers.api.pages.imports import ImportJob
    from butlers.secrets.vault import Vault

TEMPLATES = Path(__file__).parent / "templates"
VaultOpener = Callable[[], "AbstractAsyncContextManager[Vault]"]


@dataclass(frozen=True, slots=True)
class NavItem:
    path: str
    title: str
    icon: str  # id of a symbol in icons.svg


NAVIGATION = (
    NavItem("/", "Home", "home"),
    NavItem("/chat", "Chat", "chat"),
    NavItem("/data", "Your data", "data"),
    NavItem("/memory", "Memory", "memory"),
    NavItem("/approvals", "Approvals", "check"),
    NavItem("/schedules", "Schedules", "clock"),
)
BEHIND = (
    NavItem("/messages", "Messages", "mail"),
    NavItem("/sessions", "Sessions", "spark"),
    NavItem("/contacts", "Contacts", "people"),
    NavItem("/connectors", "Connectors", "plug"),
    NavItem("/import", "Import", "import"),
    NavItem("/butlers", "Butlers", "bell"),
    NavItem("/skills", "Skills", "book"),
    NavItem("/secrets", "Secrets", "key"),
    NavItem("/costs", "Costs", "coin"),
    NavItem("/audit", "Audit", "list"),
    NavItem("/settings", "Settings", "gear"),
)


@dataclass(frozen=True, slots=True)
class Site:
    """Parts that every page uses."""

    fleet: FleetClient
    store: SignInStore
    clock: Clock
    zone: ZoneInfo
    templates: Environment
    changes: ChangeLog
    open_vault: VaultOpener
    own_pages: Mapping[str, ButlerPage] = field(default_factory=dict)
    hosts: tuple[str, ...] = ()  # public names
    imports: dict[UUID, ImportJob] = field(default_factory=dict)  # that run or ran
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @classmethod
    def of(cls, request: Request) -> Site:
        site: Site = request.app.state.site
        return site

    def track(self, work: Coroutine[Any, Any, None]) -> None:
        """Run work that outlives its request."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.fleet.close()

    def render(
        self, request: Request, template: str, *, status_code: int = 200, **values: Any
    ) -> HTMLResponse:
        visitor = getattr(request.state, "visitor", None)
        text = self.templates.get_template(template).render(
            path=request.url.path,
            csrf=visitor.csrf if visitor else None,
            navigation=NAVIGATION,
            behind=BEHIND,
            **values,
        )
        return HTMLResponse(text, status_code)

    def render_error(self, request: Request, error: ButlersError) -> HTMLResponse:
        """Return the error as a page, or as a notice for a part of a page that htmx asked for."""
        status = status_of(error)
        part = request.headers.get("hx-request") == "true"
        return self.render(
            request, "notice.html" if part else "error.html", status_code=status, error=error
        )


def status_of(error: ButlersError) -> int:
    """Return the HTTP status of an error."""
    if error.retryable:
        return 503
    return 404 if error.code.endswith("not_found") else 400


def make_templates(zone: ZoneInfo, clock: Clock) -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    formats = _Formats(zone, clock)
    environment.filters.update(
        when=formats.when,
        ago=formats.ago,
        day=formats.day,
        number=format_number,
        short=lambda text: str(text)[:8],
        pretty=lambda value: json.dumps(value, indent=2, ensure_ascii=False, default=str),
        plain=format_cell,
        is_after=lambda moment, since: (read_moment(moment) or since) > since,
        words=lambda name: str(name).replace("-", " ").replace("_", " ").capitalize(),
    )
    return environment


@dataclass(frozen=True, slots=True)
class _Formats:
    zone: ZoneInfo
    clock: Clock

    def when(self, moment: Any) -> str:
        """Format a time in the owner's zone: "today, 09:30", "12 Mar, 18:05", "12 Mar 2025, 18:05"."""
        found = read_moment(moment)
        if found is None:
            return "" if moment is None else str(moment)
        local, now = found.astimezone(self.zone), self.clock.now().astimezone(self.zone)
        clock = f"{local:%H:%M}"
        distance = (local.date() - now.date()).days
        if distance in (0, 1, -1):
            return f"{ {0: 'today', 1: 'tomorrow', -1: 'yesterday'}[distance] }, {clock}"
        year = "" if local.year == now.year else f" {local.year}"
        return f"{local.day} {local:%b}{year}, {clock}"

    def day(self, moment: Any) -> str:
        found = read_moment(moment)
        return f"{found.astimezone(self.zone):%-d %b %Y}" if found else str(moment or "")

    def ago(self, moment: Any) -> str:
        """Format the distance from now: "just now", "5 min ago", "in 3 h", "2 days ago"."""
        found = read_moment(moment)
        if found is None:
            return ""
        distance = self.clock.now() - found
        text = _distance(abs(distance))
        if text is None:
            return "just now"
        return f"{text} ago" if distance > timedelta() else f"in {text}"


def read_moment(value: Any) -> datetime | None:
    if isinstance(value, datetime):
        return value
    if not isinstance(value, str):
        return None
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _distance(span: timedelta) -> str | None:
    minutes = int(span.total_seconds() // 60)
    if minutes < 1:
        return None
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 48 * 60:
        return f"{minutes // 60} h"
    return f"{minutes // 1440} days"


def format_number(value: Any, digits: int | None = None) -> str:
    """Format a number with a separator for thousands: 12,345.60."""
    if value is None:
        return ""
    try:
        exact = Decimal(str(value))
    except InvalidOperation:
        return str(value)
    return f"{exact:,.{digits}f}" if digits is not None else f"{exact:,}"


def format_cell(value: Any) -> str:
    """Format a value of a record for a table cell."""
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case list():
            return ", ".join(format_cell(item) for item in value)
        case Mapping():
            return ", ".join(f"{key}: {format_cell(item)}" for key, item in value.items())
    return str(value)
