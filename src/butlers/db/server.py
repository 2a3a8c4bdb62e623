"""The PostgreSQL server of this home: the one in DATABASE_URL, or else the embedded one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from urllib.parse import unquote, urlsplit

import structlog

from butlers.config.settings import Settings
from butlers.db.database import POOL_SIZE, Login, connection_to
from butlers.db.embedded import EmbeddedPostgres
from butlers.domain.errors import ButlersError, ConfigInvalid, ProvisioningError

log = structlog.get_logger()

WATCH_S = 0.5
SMALLEST_POOL = 4
OUTSIDE_POOL = 2  # of a butler: its listener, and one while it provisions and migrates
FOR_COMMANDS = 10  # of the whole server: backups, `butlers secrets`, a person with psql
_LIMITS = """
SELECT current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
       - coalesce(current_setting('reserved_connections', true)::int, 0)
"""


@asynccontextmanager
async def database_server(settings: Settings) -> AsyncIterator[Login]:
    """Yield the administrator's login; the embedded server runs while the block lasts."""
    if settings.database_url:
        yield parse_url(settings.database_url)
        return
    server = EmbeddedPostgres(settings.home)
    await asyncio.to_thread(server.acquire)
    watchdog = asyncio.create_task(_keep_running(server))
    try:
        yield Login(server.dsn(), "postgres", None, "postgres", ours=True)
    finally:
        watchdog.cancel()
        await asyncio.to_thread(server.release)


@contextmanager
def warming_up(settings: Settings) -> Iterator[None]:
    """Start the embedded server in the background, while the caller imports slow modules.

    A failure is ignored here: ``database_server`` meets it again and reports it.
    """
    if settings.database_url:
        yield
        return
    held: list[EmbeddedPostgres] = []

    def start() -> None:
        with suppress(ButlersError):
            server = EmbeddedPostgres(settings.home)
            server.acquire()
            held.append(server)

    thread = threading.Thread(target=start, name="postgres-warm-up")
    thread.start()
    try:
        yield
    finally:
        thread.join()
        for server in held:
            server.release()


async def choose_pool_size(admin: Login, butlers: int) -> int:
    """Return the pool size with which so many butlers share the connections of the server.

    Raises ProvisioningError if the server does not allow enough connections for all of them.
    """
    async with connection_to(admin, "butlers:capacity") as connection:
        allowed: int = await connection.fetchval(_LIMITS)
    size = (allowed - FOR_COMMANDS) // butlers - OUTSIDE_POOL
    if size < SMALLEST_POOL:
        needed = butlers * (SMALLEST_POOL + OUTSIDE_POOL) + FOR_COMMANDS
        raise ProvisioningError(
            f"the database server allows {allowed} connections, and {butlers} butlers need {needed}",
            hint="raise max_connections of the server and restart it, or run fewer butlers",
        )
    return min(size, POOL_SIZE)


def parse_url(url: str) -> Login:
    parts = urlsplit(url)
    if parts.scheme not in ("postgres", "postgresql"):
        raise ConfigInvalid(
            "DATABASE_URL is not a PostgreSQL address",
            key="DATABASE_URL",
            hint="use the form postgresql://user:password@host:5432/database",
        )
    return Login(
        server_dsn=url,
        user=unquote(parts.username or "postgres"),
        password=None if parts.password is None else unquote(parts.password),
        database=unquote(parts.path.lstrip("/")) or "postgres",
    )


async def _keep_running(server: EmbeddedPostgres) -> None:
    """Restart the embedded server when it dies. Every process that uses it does this."""
    while True:
        await asyncio.sleep(WATCH_S)
        try:
            if not await asyncio.to_thread(server.is_running):
                await asyncio.to_thread(server.ensure_running)
        except ButlersError as error:
            log.error("the embedded database cannot be restarted", error=str(error))
