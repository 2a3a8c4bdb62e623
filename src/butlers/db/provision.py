"""Prepares a server for a butler: database, schemas, and a login role without access to other butlers.

Roles belong to the whole server, so their names contain the id of this installation. If fleet.toml sets
``isolation = "none"``, the butlers share the given login instead.
"""

from __future__ import annotations

from dataclasses import dataclass

import asyncpg
import structlog

from butlers.config.butler import SHARED_DATABASE
from butlers.db.database import (
    POOL_SIZE,
    Connection,
    Login,
    connect,
    connection_to,
    lock_until_commit,
)
from butlers.db.migrations import current_revision, migrate, shared_chain
from butlers.domain.errors import ProvisioningError
from butlers.domain.queues import SWITCHBOARD
from butlers.wire.tokens import FleetKey

log = structlog.get_logger()

SHARED = "shared"
SHARED_SCOPE = "shared"  # of secrets for every butler; any other scope is a butler's name
APPLICATION = PROVISION_LOCK = "butlers:provision"
CONNECTIONS = 40  # of one role at once
# Longer than anything that a butler does: a statement that takes longer is stuck.
ROLE_SETTINGS = {"statement_timeout": "10min", "lock_timeout": "1min"}
# Shared tables that a butler may write: senders, and the addresses of people.
_WRITERS = {SWITCHBOARD: ("contacts", "contact_channels"), "relationship": ("contact_info",)}
EXTENSIONS = ("vector",)  # used where they can be installed; nothing requires them


@dataclass(frozen=True, slots=True)
class ButlerSchema:
    """Location of a butler's tables."""

    butler: str
    database: str
    schema: str | None  # None: a separate database


@dataclass(frozen=True, slots=True)
class Provisioner:
    admin: Login
    key: FleetKey
    isolated: bool = True  # each butler has its own role
    shared_database: str = SHARED_DATABASE  # contains the original of the shared secrets
    pool_size: int = POOL_SIZE  # of each butler

    def role(self, butler: str) -> str:
        return f"butlers_{self.key.instance}_{butler.replace('-', '_')}"

    def login(self, place: ButlerSchema) -> Login:
        """Return the butler's login: its role, with its schema first and then the shared one."""
        user, password = self.admin.user, self.admin.password
        if self.isolated:
            user, password = self.role(place.butler), self.key.derive(f"role:{place.butler}")
        return Login(
            server_dsn=self.admin.server_dsn,
            user=user,
            password=password,
            database=place.database,
            search_path=tuple(dict.fromkeys((place.schema or "public", SHARED, "public"))),
            lock_salt=self._lock_salt(place.butler),
        )

    def _lock_salt(self, name: str) -> int:
        return int(self.key.derive(f"locks:{name}")[:15], 16)

    async def provision(self, place: ButlerSchema) -> Login:
        """Create whatever is missing and return the butler's login. Safe to run concurrently."""
        login = self.login(place)
        async with connection_to(self._admin_in(self.admin.database), APPLICATION) as connection:
            if self.isolated:
                await self._require_createrole(connection)
                await self._ensure_role(connection, login)
            if self.admin.ours:
                await _close_system_databases(connection)
            await self._ensure_database(connection, place.database)
        async with connection_to(self._admin_in(place.database), APPLICATION) as connection:
            await self._ensure_shared(connection, place.database)
            async with connection.transaction():
                await _lock(connection)
                await self._ensure_schemas(connection, place, login)
        return login

    async def provision_shared(self, database: str) -> Login:
        """Create the shared schema of a database, and return the administrator's login to it."""
        async with connection_to(self.admin, APPLICATION) as connection:
            await self._ensure_database(connection, database)
        login = self._admin_in(database)
        async with connection_to(login, APPLICATION) as connection:
            await self._ensure_shared(connection, database)
        return login

    async def mirror_shared(self, database: str) -> None:
        """Update the copy of the shared secrets in this database."""
        async with connection_to(self._admin_in(database), APPLICATION) as connection:
            await self._mirror_shared(connection, database)

    def _admin_in(self, database: str) -> Login:
        admin = self.admin
        salt = self._lock_salt("")
        return Login(admin.server_dsn, admin.user, admin.password, database, (SHARED,), salt)

    async def _require_createrole(self, connection: Connection) -> None:
        allowed = await connection.fetchval(
            "SELECT rolsuper OR rolcreaterole FROM pg_roles WHERE rolname = current_user"
        )
        if not allowed:
            raise ProvisioningError(
                f"the database user {self.admin.user!r} cannot create roles, so butlers could read"
                " each other's data",
                hint='grant it CREATEROLE, or set isolation = "none" in fleet.toml to share one role',
            )

    async def _ensure_role(self, connection: Connection, login: Login) -> None:
        async with connection.transaction():
            await _lock(connection)
            exists = await connection.fetchval(
                "SELECT true FROM pg_roles WHERE rolname = $1", login.user
            )
            if not exists:
                await self._create_role(connection, login)
            await _limit_role(connection, login.user)

    async def _create_role(self, connection: Connection, login: Login) -> None:
        statement = await connection.fetchval(
            "SELECT format('CREATE ROLE %I LOGIN NOINHERIT PASSWORD %L', $1::text, $2::text)",
            login.user,
            login.password,
        )
        await connection.execute(statement)
        # Needed to make the role the owner of schemas if we are not superuser.
        await connection.execute(f'GRANT "{login.user}" TO current_user')

    async def _ensure_database(self, connection: Connection, name: str) -> None:
        exists = await connection.fetchval("SELECT true FROM pg_database WHERE datname = $1", name)
        if exists:
            log.info("database found", database=name)
            return
        try:
            await connection.execute(f'CREATE DATABASE "{name}"')
        except (asyncpg.DuplicateDatabaseError, asyncpg.UniqueViolationError):
            return  # another process created it in the meantime
        except asyncpg.InsufficientPrivilegeError as error:
            raise ProvisioningError(
                f"the database {name!r} does not exist and cannot be created: {error}",
                hint=f"create it, or grant {self.admin.user!r} CREATEDB",
            ) from error
        log.info("database created", database=name)

    async def _ensure_shared(
        self, connection: asyncpg.Connection[asyncpg.Record], database: str
    ) -> None:
        async with connection.transaction():
            await _lock(connection)
            await connection.execute(f'REVOKE ALL ON DATABASE "{database}" FROM PUBLIC')
            await connection.execute("REVOKE ALL ON SCHEMA public FROM PUBLIC")
            await connection.execute(f'CREATE SCHEMA IF NOT EXISTS "{SHARED}"')
        await _install_extensions(connection)
        chain = shared_chain()
        if await current_revision(connection, SHARED, chain) != chain.head():
            await migrate(self._admin_in(database), [chain])
        await self._mirror_shared(connection, database)

    async def _mirror_shared(self, connection: Connection, database: str) -> None:
        if database == self.shared_database:
            return
        try:
            original = await connect(self._admin_in(self.shared_database), APPLICATION)
        except asyncpg.InvalidCatalogNameError:
            return  # no butler uses the shared database
        except asyncpg.InsufficientPrivilegeError as error:
            raise ProvisioningError(
                f"the database {self.shared_database!r}, which contains the shared secrets, does not"
                f" accept the connection: {error}",
                hint=f"grant {self.admin.user!r} CONNECT on it",
            ) from error
        try:
            async with connection.transaction():
                # Lock before reading, so that an older state cannot overwrite a newer one.
                await _lock(connection)
                await _copy_shared_secrets(original, connection)
        except asyncpg.UndefinedTableError:
            return  # another process is creating it
        finally:
            await original.close()

    async def _ensure_schemas(
        self, connection: Connection, place: ButlerSchema, login: Login
    ) -> None:
        if place.schema:
            await connection.execute(f'CREATE SCHEMA IF NOT EXISTS "{place.schema}"')
        if not self.isolated:
            return
        role = login.user
        await connection.execute(f'GRANT CONNECT ON DATABASE "{place.database}" TO "{role}"')
        await connection.execute(f'GRANT USAGE ON SCHEMA "{SHARED}", public TO "{role}"')
        # Shared tables are readable for all butlers; writing is granted per table.
        readable = f'SELECT ON TABLES TO "{role}"'
        await connection.execute(f'GRANT SELECT ON ALL TABLES IN SCHEMA "{SHARED}" TO "{role}"')
        await connection.execute(f'ALTER DEFAULT PRIVILEGES IN SCHEMA "{SHARED}" GRANT {readable}')
        for table in _WRITERS.get(place.butler, ()):
            rights = f'INSERT, UPDATE, DELETE ON "{SHARED}".{table}'
            await connection.execute(f'GRANT {rights} TO "{role}"')
        await self._ensure_secrets_policy(connection, place.butler, role)
        await connection.execute(f'ALTER SCHEMA "{login.schema}" OWNER TO "{role}"')

    async def _ensure_secrets_policy(self, connection: Connection, butler: str, role: str) -> None:
        """Let the role read the shared secrets and its own. Without a policy it sees none."""
        exists = await connection.fetchval(
            "SELECT true FROM pg_policies"
            " WHERE schemaname = $1 AND tablename = 'secrets' AND policyname = $2",
            SHARED,
            role,
        )
        if exists:
            return
        statement = await connection.fetchval(
            f"SELECT format('CREATE POLICY %1$I ON {SHARED}.secrets FOR SELECT TO %1$I"
            " USING (scope IN (%2$L, %3$L))', $1::text, $2::text, $3::text)",
            role,
            SHARED_SCOPE,
            butler,
        )
        await connection.execute(statement)


async def _limit_role(connection: Connection, role: str) -> None:
    """Limit what one butler can take from the others: connections, and the time of statements and locks."""
    found = await connection.fetchrow(
        "SELECT r.rolconnlimit AS connections, s.setconfig AS settings FROM pg_roles r"
        " LEFT JOIN pg_db_role_setting s ON s.setrole = r.oid AND s.setdatabase = 0"
        " WHERE r.rolname = $1",
        role,
    )
    assert found is not None
    if found["connections"] != CONNECTIONS:
        await connection.execute(f'ALTER ROLE "{role}" CONNECTION LIMIT {CONNECTIONS}')
    for name, value in ROLE_SETTINGS.items():
        if f"{name}={value}" not in (found["settings"] or ()):
            await connection.execute(f"ALTER ROLE \"{role}\" SET {name} = '{value}'")


async def _close_system_databases(connection: Connection) -> None:
    """Keep butlers' roles out of the databases of the server itself."""
    async with connection.transaction():
        await _lock(connection)
        found = await connection.fetch(
            "SELECT datname FROM pg_database WHERE datname IN ('postgres', 'template1')"
            " AND has_database_privilege('public', oid, 'CONNECT')"
        )
        for row in found:
            await connection.execute(f'REVOKE ALL ON DATABASE "{row["datname"]}" FROM PUBLIC')


async def _install_extensions(connection: Connection) -> None:
    """Install the optional extensions that the server has and the administrator may install."""
    missing = await connection.fetch(
        """
        SELECT name FROM unnest($1::text[]) AS name
        WHERE NOT EXISTS (SELECT 1 FROM pg_extension WHERE extname = name)
        """,
        list(EXTENSIONS),
    )
    for name in (row["name"] for row in missing):
        available = await connection.fetchval(
            "SELECT true FROM pg_available_extensions WHERE name = $1", name
        )
        if not available:
            continue
        try:
            async with connection.transaction():
                await _lock(connection)
                await connection.execute(f'CREATE EXTENSION IF NOT EXISTS "{name}" SCHEMA public')
        except asyncpg.InsufficientPrivilegeError:
            log.info("extension not installed", extension=name, reason="the database user may not")


async def _lock(connection: Connection) -> None:
    """Serialize provisioning: concurrent changes of a catalog row fail with an error."""
    await lock_until_commit(connection, PROVISION_LOCK)


async def _copy_shared_secrets(source: Connection, target: Connection) -> None:
    """Make the target's secrets of the shared scope equal to the source's. The rows stay encrypted."""
    rows = await source.fetch(
        """
        SELECT scope, name, nonce, ciphertext, key_id, category, description, created_at, updated_at
        FROM shared.secrets WHERE scope = $1 ORDER BY name
        """,
        SHARED_SCOPE,
    )
    await target.execute(
        "DELETE FROM shared.secrets WHERE scope = $1 AND NOT name = ANY($2::text[])",
        SHARED_SCOPE,
        [row["name"] for row in rows],
    )
    await target.executemany(
        """
        INSERT INTO shared.secrets AS kept VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
        ON CONFLICT (scope, name) DO UPDATE
        SET nonce = EXCLUDED.nonce, ciphertext = EXCLUDED.ciphertext, key_id = EXCLUDED.key_id,
            category = EXCLUDED.category, description = EXCLUDED.description,
            updated_at = EXCLUDED.updated_at
        WHERE kept.nonce IS DISTINCT FROM EXCLUDED.nonce
        """,
        [tuple(row) for row in rows],
    )
