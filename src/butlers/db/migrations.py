"""Migration chains: their revisions, the revision of a schema, and the pending chains.

Each chain is a folder of Alembic revisions with its own version table, so that a chain can be removed
without breaking the others. Comparing heads takes one query and no Alembic, which is imported only if a
migration is pending, because the import takes half a second.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import asyncpg
import structlog

from butlers.db.database import Login, connection_to
from butlers.domain.errors import MigrationFailed

log = structlog.get_logger()

CORE = "core"
SHARED = "shared"
REVISION = re.compile(r"^revision(?::\s*\S+)?\s*=\s*[\"']([^\"']+)[\"']", re.MULTILINE)
DOWN = re.compile(r"^down_revision(?:[^=]*)?=\s*(?:[\"']([^\"']+)[\"']|None)", re.MULTILINE)

# Alembic keeps its context in process-wide proxies: one upgrade at a time per process, in any event loop.
_one_upgrade = threading.Lock()


def shipped_versions() -> Path:
    return Path(__file__).resolve().parents[3] / "alembic" / "versions"


@dataclass(frozen=True, slots=True)
class Chain:
    name: str
    directory: Path

    @property
    def version_table(self) -> str:
        return "alembic_version" if self.name == CORE else f"alembic_version_{self.name}"

    def head(self) -> str | None:
        """Return the newest revision, or None. Raise MigrationFailed if the chain has several heads."""
        revisions: set[str] = set()
        parents: set[str] = set()
        for path in sorted(self.directory.glob("*.py")):
            text = path.read_text(encoding="utf-8")
            if found := REVISION.search(text):
                revisions.add(found[1])
                if (down := DOWN.search(text)) and down[1]:
                    parents.add(down[1])
        heads = revisions - parents
        if len(heads) > 1:
            raise MigrationFailed(
                f"the migration chain {self.name!r} has several heads: {', '.join(sorted(heads))}",
                hint=f"give one of them in {self.directory} the other as its down_revision",
            )
        return next(iter(heads), None)


def find_chain(name: str, versions: Path) -> Chain | None:
    directory = versions / name
    return Chain(name, directory) if directory.is_dir() else None


def shared_chain() -> Chain:
    """Return the chain of the shared tables, which the administrator applies in the schema ``shared``."""
    return Chain(SHARED, shipped_versions() / SHARED)


def butler_chains(butler: str, versions: Path) -> list[Chain]:
    """Return the core chain, then the butler's own if it has one."""
    names = (CORE, butler.replace("-", "_"))
    return [chain for name in names if (chain := find_chain(name, versions))]


async def current_revision(
    connection: asyncpg.Connection[asyncpg.Record], schema: str, chain: Chain
) -> str | None:
    """Return the schema's revision. Another program's alembic_version on the search path is ignored."""
    try:
        revision: str | None = await connection.fetchval(
            f'SELECT version_num FROM "{schema}"."{chain.version_table}"'
        )
    except asyncpg.UndefinedTableError:
        return None
    return revision


async def pending_chains(login: Login, chains: Sequence[Chain]) -> list[Chain]:
    async with connection_to(login, "butlers:migrate") as connection:
        return [
            chain
            for chain in chains
            if await current_revision(connection, login.schema, chain) != chain.head()
        ]


@asynccontextmanager
async def _one_at_a_time() -> AsyncIterator[None]:
    while not _one_upgrade.acquire(blocking=False):  # noqa: ASYNC110  (an asyncio.Event belongs to one loop)
        await asyncio.sleep(0.01)
    try:
        yield
    finally:
        _one_upgrade.release()


async def migrate(login: Login, chains: Sequence[Chain]) -> list[str]:
    """Apply pending migrations to a schema and return the applied revisions."""
    pending = await pending_chains(login, chains)
    if not pending:
        log.info("migrations up to date", schema=login.schema)
        return []
    from butlers.db.upgrade import upgrade

    applied: list[str] = []
    for chain in pending:
        async with _one_at_a_time():
            revisions = await upgrade(login, chain)
        for revision in revisions:
            log.info("migration applied", schema=login.schema, chain=chain.name, revision=revision)
        applied += revisions
    return applied
