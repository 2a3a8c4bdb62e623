"""Applies one chain with Alembic. Only this file imports Alembic, and it is imported only when needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import asyncpg
from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from butlers.db.database import Login, lock_statement, unavailable_when_gone
from butlers.db.migrations import Chain
from butlers.domain.errors import DatabaseUnavailable, MigrationFailed

SCRIPTS = Path(__file__).resolve().parents[3] / "alembic"


async def upgrade(login: Login, chain: Chain) -> list[str]:
    """Apply the pending revisions in one transaction and return them, oldest first."""

    async def open_connection() -> Any:
        with unavailable_when_gone():
            return await asyncpg.connect(**login.arguments("butlers:migrate"))

    engine = create_async_engine(
        "postgresql+asyncpg://", async_creator=open_connection, poolclass=NullPool
    )
    try:
        async with engine.begin() as connection:
            return await connection.run_sync(_upgrade, chain, login.schema)
    except DatabaseUnavailable:
        raise
    except Exception as error:  # a revision is code and may raise anything
        cause = getattr(error, "orig", None) or error
        raise MigrationFailed(
            f"migration chain {chain.name!r} failed on schema {login.schema!r}: {cause}",
            hint=f"it was rolled back; the revisions are in {chain.directory}",
        ) from error
    finally:
        await engine.dispose()


def _upgrade(connection: Connection, chain: Chain, schema: str) -> list[str]:
    # Two daemons that migrate a schema at once would both create its tables.
    connection.execute(text(lock_statement(":name")), {"name": f"alembic:{schema}"})
    applied: list[str] = []
    config = Config()
    config.set_main_option("script_location", _literal(SCRIPTS))
    config.set_main_option("version_locations", _literal(chain.directory))
    config.set_main_option("path_separator", "newline")
    config.attributes.update(
        connection=connection,
        schema=schema,
        version_table=chain.version_table,
        applied=applied,
    )
    command.upgrade(config, "head")
    return applied


def _literal(path: Path) -> str:
    return str(path).replace("%", "%%")  # Alembic reads its options with configparser
