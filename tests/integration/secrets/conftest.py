"""A installation of three butlers: two share a database, the third has one of its own."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import asyncpg
import pytest

from butlers.db.database import Database, Login, connect
from butlers.db.provision import ButlerSchema, Provisioner
from butlers.secrets.credentials import CredentialStore
from butlers.secrets.master_key import MasterKey
from butlers.secrets.vault import Vault
from butlers.wire.tokens import FleetKey
from support.prepared import key, prepared

__all__ = ["key", "prepared"]


@dataclass
class Installation:
    provisioner: Provisioner
    vault: Vault
    logins: dict[str, Login]
    opened: list[Database] = field(default_factory=list)

    @property
    def key(self) -> MasterKey:
        return self.vault.key

    async def store(
        self, butler: str, *, key: MasterKey | None = None, **environ: str
    ) -> CredentialStore:
        database = await Database.open(self.logins[butler], "tests", size=2)
        self.opened.append(database)
        return CredentialStore(database, key or self.key, butler=butler, environ=environ)

    @asynccontextmanager
    async def as_role(self, butler: str) -> AsyncIterator[asyncpg.Connection[Any]]:
        connection = await connect(self.logins[butler], "tests")
        try:
            yield connection
        finally:
            await connection.close()

    @asynccontextmanager
    async def as_admin(self, butler: str = "health") -> AsyncIterator[asyncpg.Connection[Any]]:
        login = await self.provisioner.provision_shared(self.logins[butler].database)
        connection = await connect(login, "tests")
        try:
            yield connection
        finally:
            await connection.close()


@pytest.fixture
def master() -> MasterKey:
    return MasterKey(secrets.token_bytes(32))


async def build_installation(
    admin: Login, key: FleetKey, master: MasterKey, name: str
) -> Installation:
    provisioner = Provisioner(admin, key, shared_database=name)
    places = [
        ButlerSchema("health", name, "health"),
        ButlerSchema("general", name, "general"),
        ButlerSchema("solo", f"{name}_own", None),
    ]
    logins = {place.butler: await provisioner.provision(place) for place in places}
    databases = {place.butler: place.database for place in places}
    return Installation(provisioner, Vault(provisioner, master, databases), logins)


async def drop_installation(installation: Installation) -> None:
    connection = await connect(installation.provisioner.admin, "tests")
    for name in set(installation.vault.databases.values()):
        await connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
    await connection.close()


@pytest.fixture(scope="module")
def built(admin: Login) -> Iterator[Installation]:
    key, master = FleetKey(secrets.token_bytes(32)), MasterKey(secrets.token_bytes(32))
    installation = asyncio.run(
        build_installation(admin, key, master, f"town_{secrets.token_hex(6)}")
    )
    yield installation
    asyncio.run(drop_installation(installation))


@pytest.fixture
async def installation(built: Installation) -> AsyncIterator[Installation]:
    """The file's installation, without any secrets in it."""
    yield built
    while built.opened:
        await built.opened.pop().close()
    for butler in ("health", "solo"):
        async with built.as_admin(butler) as connection:
            await connection.execute("DELETE FROM shared.secrets")


@pytest.fixture
async def fresh_installation(
    admin: Login, key: FleetKey, master: MasterKey
) -> AsyncIterator[Installation]:
    """A installation that the test may change."""
    installation = await build_installation(admin, key, master, f"town_{secrets.token_hex(6)}")
    yield installation
    while installation.opened:
        await installation.opened.pop().close()
    await drop_installation(installation)
