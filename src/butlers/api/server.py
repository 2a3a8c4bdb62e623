"""The dashboard's HTTP server, which runs beside the fleet in one process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from zoneinfo import ZoneInfo

import structlog
import uvicorn

from butlers.api.app import make_app
from butlers.config.butler import ButlerConfig
from butlers.config.files import make_private_folder, replace_file
from butlers.config.fleet import FleetConfig
from butlers.config.settings import Settings
from butlers.daemon.endpoint import EmbeddedServer
from butlers.daemon.http_limits import MAX_HEADER_BYTES, LimitedProtocol
from butlers.daemon.ports import bind_port, hold_port
from butlers.domain.errors import PortTaken
from butlers.secrets.vault import open_vault

PORT = 40200

log = structlog.get_logger()


@asynccontextmanager
async def serving(
    settings: Settings, fleet: FleetConfig, configs: Sequence[ButlerConfig] = ()
) -> AsyncIterator[str | None]:
    """Serve the dashboard during the block, and yield its address; None if its port is taken."""
    try:
        listener = bind_port(PORT + settings.port_offset)
        hold_port(listener)
    except PortTaken as error:
        log.error("dashboard failed", error=str(error), hint=error.hint)
        yield None
        return
    host, port = listener.getsockname()
    address = f"http://{host}:{port}"
    databases = {config.name: config.db.name for config in configs}
    app = make_app(
        settings.home,
        ZoneInfo(fleet.timezone),
        folders=[config.directory for config in configs],
        open_vault=partial(open_vault, settings, databases, isolated=fleet.isolation == "roles"),
        hosts=fleet.dashboard_hosts,
    )
    server = EmbeddedServer(
        uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            ws="none",
            http=LimitedProtocol,
            h11_max_incomplete_event_size=MAX_HEADER_BYTES,
            timeout_graceful_shutdown=1,
        )
    )
    running = asyncio.create_task(server.serve(sockets=[listener]))
    entry = address_file(settings.home)
    make_private_folder(entry.parent)
    replace_file(entry, address.encode())
    try:
        yield address
    finally:
        entry.unlink(missing_ok=True)
        server.end()
        await running
        listener.close()


def address_file(home: Path) -> Path:
    """Return the file that holds the address of the running dashboard."""
    return home / "run" / "dashboard.url"
