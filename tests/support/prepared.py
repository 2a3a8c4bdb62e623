"""A template database in which the test butler and the shipped butlers are provisioned and migrated.

A test gets a copy, so that a butler of the same installation finds nothing to provision or to migrate.
"""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import pytest

from butlers.db.database import Login
from butlers.db.migrations import Chain, butler_chains, migrate
from butlers.db.provision import ButlerSchema, Provisioner
from butlers.wire.tokens import FleetKey
from support.tester_folder import write_versions

SHIPPED = ("switchboard", "messenger", "general", "relationship", "health", "finance", "travel")
WITH_MEMORY = ("tester", "general", "relationship", "health", "finance", "travel")

WITH_CALENDAR = ("general",)


async def make_template(admin: Login, key: FleetKey) -> str:
    name = f"prepared_{secrets.token_hex(4)}"
    provisioner = Provisioner(admin, key, shared_database=name)
    with tempfile.TemporaryDirectory() as folder:
        versions = Path(folder) / "versions"
        write_versions(versions)
        for butler, schema in (("tester", None), *((shipped, shipped) for shipped in SHIPPED)):
            login = await provisioner.provision(ButlerSchema(butler, name, schema))
            chains = [*butler_chains(butler, versions), Chain("approvals", versions / "approvals")]
            if butler in WITH_MEMORY:
                chains.append(Chain("memory", versions / "memory"))
            if butler in WITH_CALENDAR:
                chains.append(Chain("calendar", versions / "calendar"))
            await migrate(login, chains)
    return name


@asynccontextmanager
async def copied(admin: Login, template: str, name: str) -> AsyncIterator[None]:
    connection = await asyncpg.connect(**admin.arguments("tests"))
    try:
        await connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
        yield
    finally:
        await connection.close()


@pytest.fixture
def key() -> FleetKey:
    """An installation of its own: other roles, other passwords."""
    return FleetKey(secrets.token_bytes(32))


@pytest.fixture
def prepared() -> None:
    """No copy of the template: the test's database is not there yet."""
