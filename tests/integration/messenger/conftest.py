"""The Messenger's tables in their own database, and a delivery sender that works on them."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator

import asyncpg
import pytest
from structlog.testing import capture_logs

from butlers.db.database import Database, Login
from butlers.db.migrations import butler_chains, migrate, shipped_versions
from butlers.db.provision import ButlerSchema, Provisioner
from butlers.queue import worker
from butlers.wire.tokens import FleetKey
from support.deliveries import DeliveryHarness
from support.webhook_server import WebhookServer


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the retry delays."""
    monkeypatch.setattr(worker, "BACKOFF_BASE_S", 0.01)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with capture_logs():
        yield


@pytest.fixture(scope="session")
def messenger_template(admin: Login, session_key: FleetKey) -> Login:
    place = ButlerSchema("messenger", f"template_{secrets.token_hex(4)}", None)

    async def prepare() -> Login:
        login = await Provisioner(admin, session_key).provision(place)
        await migrate(login, butler_chains("messenger", shipped_versions()))
        return login

    return asyncio.run(prepare())


@pytest.fixture
async def messenger_database(admin: Login, messenger_template: Login) -> AsyncIterator[Database]:
    template, name = messenger_template, f"test_{secrets.token_hex(6)}"
    connection = await asyncpg.connect(**admin.arguments("tests"))
    try:
        await connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template.database}"')
        await connection.execute(f'GRANT CONNECT ON DATABASE "{name}" TO "{template.user}"')
        opened = await Database.open(
            Login(
                template.server_dsn, template.user, template.password, name, template.search_path
            ),
            "tests",
        )
        yield opened
        await opened.close()
        await connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
    finally:
        await connection.close()


@pytest.fixture
async def closed(
    messenger_database: Database, server: WebhookServer
) -> AsyncIterator[DeliveryHarness]:
    """A harness whose workers the test starts itself."""
    made = DeliveryHarness(messenger_database, server)
    yield made
    server.release()
    await made.close()


@pytest.fixture
async def harness(closed: DeliveryHarness) -> DeliveryHarness:
    await closed.open()
    return closed
