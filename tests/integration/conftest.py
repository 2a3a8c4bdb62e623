"""Real butlers in the test's process, against the database server of the test run."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import pytest

from butlers.db.database import Database, Login
from butlers.db.migrations import Chain, butler_chains, migrate, shipped_versions
from butlers.db.provision import ButlerSchema, Provisioner
from butlers.wire.tokens import FleetKey
from support import npm
from support.in_process import InProcessButler, MakeButler
from support.prepared import copied, make_template
from support.programs import Programs
from support.tester_folder import copy_roster, write_tester, write_versions
from support.webhook_server import WebhookServer


@pytest.fixture(scope="session")
def prepared_template(admin: Login, session_key: FleetKey) -> str:
    return asyncio.run(make_template(admin, session_key))


@pytest.fixture
def key(session_key: FleetKey) -> FleetKey:
    """The installation of the prepared template, whose roles are there already."""
    return session_key


@pytest.fixture
async def prepared(admin: Login, prepared_template: str, database_name: str) -> AsyncIterator[None]:
    """The test's database, with the butlers provisioned and migrated."""
    async with copied(admin, prepared_template, database_name):
        yield


@pytest.fixture
async def make_butler(
    tmp_path: Path,
    home: Path,
    key: FleetKey,
    provisioner: Provisioner,
    database_name: str,
    prepared: None,
) -> AsyncIterator[MakeButler]:
    """Make the test butler, or a shipped one by name; each is closed after the test."""
    made: list[InProcessButler] = []
    versions = tmp_path / "versions"
    write_versions(versions)

    def make(roster: str | None = None, **options: str) -> InProcessButler:
        directory = tmp_path / (roster or "tester")
        if roster is None:
            write_tester(directory, database_name, **options)
        else:
            copy_roster(roster, directory, database_name)
        made.append(InProcessButler(directory, home, key, provisioner, versions))
        return made[-1]

    yield make
    for butler in made:
        await butler.close()


@pytest.fixture
async def tester(make_butler: MakeButler) -> InProcessButler:
    """The test butler, running."""
    made = make_butler()
    await made.start()
    return made


@pytest.fixture
async def switchboard(make_butler: MakeButler) -> InProcessButler:
    """The shipped Switchboard, running."""
    made = make_butler("switchboard")
    await made.start()
    return made


@pytest.fixture
def mcp_programs(home: Path) -> Programs:
    """The protocol's own programs: its conformance suite and its Inspector."""
    return Programs(npm.installed("mcp"), home)


@pytest.fixture
def make_pack_butler(make_butler: MakeButler) -> MakeButler:
    """Make a test butler whose configuration names packs; ``extra``: more of its butler.toml."""

    def make(*packs: str, skills: str = "", extra: str = "") -> InProcessButler:
        named = ", ".join(f'"{pack}"' for pack in packs)
        return make_butler(extra=f"{extra}\n[skills]\npacks = [{named}]\n{skills}\n")

    return make


@pytest.fixture
def server() -> Iterator[WebhookServer]:
    """A real HTTP server that takes webhook deliveries."""
    running = WebhookServer()
    yield running
    running.close()


@pytest.fixture(scope="session")
def messenger_template(admin: Login, session_key: FleetKey) -> Login:
    """A database with the Messenger's tables, copied for each test that wants one."""
    place = ButlerSchema("messenger", f"template_{secrets.token_hex(4)}", None)

    async def prepare() -> Login:
        login = await Provisioner(admin, session_key).provision(place)
        approvals = Chain("approvals", shipped_versions() / "approvals")
        await migrate(login, [*butler_chains("messenger", shipped_versions()), approvals])
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
