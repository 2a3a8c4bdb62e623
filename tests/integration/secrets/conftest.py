"""A town of three butlers: two share a database, the third has one of its own."""

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
class Town:
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


async def build_town(admin: Login, key: FleetKey, master: MasterKey, name: str) -> Town:
    provisioner = Provisioner(admin, key, shared_database=name)
    places = [
        ButlerSchema("health", name, "health"),
        ButlerSchema("general", name, "general"),
        ButlerSchema("solo", f"{name}_own", None),
    ]
    logins = {place.butler: await provisioner.provision(place) for place in places}
    databases = {place.butler: place.database for place in places}
    return Town(provisioner, Vault(provisioner, master, databases), logins)


async def drop_town(town: Town) -> None:
    connection = await connect(town.provisioner.admin, "tests")
    for name in set(town.vault.databases.values()):
        await connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
    await connection.close()


@pytest.fixture(scope="module")
def built(admin: Login) -> Iterator[Town]:
    key, master = FleetKey(secrets.token_bytes(32)), MasterKey(secrets.token_bytes(32))
    town = asyncio.run(build_town(admin, key, master, f"town_{secrets.token_hex(6)}"))
    yield town
    asyncio.run(drop_town(town))


@pytest.fixture
async def town(built: Town) -> AsyncIterator[Town]:
    """The file's town, without any secrets in it."""
    yield built
    while built.opened:
        await built.opened.pop().close()
    for butler in ("health", "solo"):
        async with built.as_admin(butler) as connection:
            await connection.execute("DELETE FROM shared.secrets")


@pytest.fixture
async def fresh_town(admin: Login, key: FleetKey, master: MasterKey) -> AsyncIterator[Town]:
    """A town that the test may change."""
    town = await build_town(admin, key, master, f"town_{secrets.token_hex(6)}")
    yield town
    while town.opened:
        await town.opened.pop().close()
    await drop_town(town)
