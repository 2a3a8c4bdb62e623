"""A butler's identity: a name, a port with an MCP server, and one schema of one database."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import httpx
import pytest
from fastmcp import Client
from fastmcp.client.transports import SSETransport

from butlers.config.butler import DatabaseConfig, load_butler_config
from butlers.config.settings import Settings
from butlers.daemon.butler import READY, Butler
from butlers.db.database import Login, connect
from butlers.db.provision import ButlerSchema, Provisioner
from butlers.domain.caller import CallerKind
from butlers.wire.tokens import FleetKey
from support.fleet import Slot

ROSTER = Path(__file__).resolve().parents[3] / "roster"


@pytest.fixture
async def general(
    tmp_path: Path, home: Path, key: FleetKey, provisioner: Provisioner, database_name: str
) -> AsyncIterator[tuple[Butler, int]]:
    """The shipped General butler. Tests share a machine, so its port is shifted by the offset that is
    made for that, and its database is not called `butlers` but is shared by schemas in the same way."""
    folder = tmp_path / "general"
    shutil.copytree(ROSTER / "general", folder)
    written = (folder / "butler.toml").read_text()
    assert 'name = "butlers"\nschema = "general"' in written
    (folder / "butler.toml").write_text(written.replace('"butlers"', f'"{database_name}"'))
    slot = Slot()
    config = load_butler_config(folder, Settings(home, port_offset=slot.offset))
    butler = Butler(config, settings=Settings(home), key=key, provisioner=provisioner)
    await butler.start()
    yield butler, 40101 + slot.offset
    await butler.stop()
    slot.release()


@pytest.mark.scenario("S001-01", "S001-38")
async def test_a_butler_is_a_name_a_port_and_a_schema(
    general: tuple[Butler, int],
    key: FleetKey,
    admin: Login,
    provisioner: Provisioner,
    database_name: str,
) -> None:
    butler, port = general
    assert butler.phase == READY

    # It is identified by its name ...
    assert butler.config.name == "general"
    async with httpx.AsyncClient(trust_env=False, verify=False) as http:
        health = (await http.get(f"http://127.0.0.1:{port}/health")).json()
    assert health["name"] == "general"

    # ... behind a FastMCP server, for SSE too, on the port it was assigned.
    assert butler.url == f"http://127.0.0.1:{port}/mcp"
    token = key.mint(CallerKind.OWNER, "tests", "general")
    async with Client(SSETransport(butler.url, auth=token)) as client:
        offered = {tool.name for tool in await client.list_tools()}
        status = (await client.call_tool("status", {})).structured_content
    assert "status" in offered
    assert status is not None
    assert "general" in str(status)

    # It works in its own schema of the one database, as its butler.toml says ...
    assert butler.config.db == DatabaseConfig(database_name, "general")
    await provisioner.provision(ButlerSchema("health", database_name, "health"))
    owner = await connect(Login(admin.server_dsn, "postgres", None, database_name), "tests")
    await owner.execute("CREATE TABLE health.diary (x text)")
    await owner.execute("CREATE TABLE shared.facts (fact text)")
    await owner.execute("INSERT INTO shared.facts VALUES ('for all')")
    await owner.close()
    async with butler.database.pool.acquire() as connection:
        assert await connection.fetchval("SELECT current_database()") == database_name
        assert await connection.fetchval("SELECT current_schema()") == "general"
        assert await connection.fetchval("SELECT count(*) FROM general.collections") == 0

        # ... with `shared` beside it, and no way to the others'.
        assert await connection.fetchval("SHOW search_path") == "general,shared,public"
        visible = await connection.fetchval("SELECT current_schemas(false)")
        assert visible == ["general", "shared", "public"]
        assert await connection.fetchval("SELECT fact FROM facts") == "for all"
        with pytest.raises(asyncpg.UndefinedTableError):
            await connection.fetch("SELECT * FROM diary")
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.fetch("SELECT * FROM health.diary")
