"""The owner's access to secrets: all scopes, in every database of this home's butlers.

The originals of the shared secrets are in the database ``butlers``. A butler with a separate database has a
copy there, which is updated after each change and whenever the butler is provisioned.

A change uses one transaction per database. An error before the first commit rolls all of them back, but
they do not commit together: a crash, or a commit that fails, can leave some databases changed and others
not. Run the command again in that case; writing the same secrets twice is harmless.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from butlers.config.settings import Settings
from butlers.db.database import Connection, connection_to
from butlers.db.provision import SHARED_SCOPE, Provisioner
from butlers.db.server import database_server
from butlers.domain.errors import NotFound
from butlers.secrets import sealed as secrets
from butlers.secrets.master_key import MasterKey
from butlers.secrets.sealed import NewSecret, SecretEntry
from butlers.wire.tokens import FleetKey


@dataclass(frozen=True, slots=True)
class Vault:
    provisioner: Provisioner
    key: MasterKey
    databases: Mapping[str, str]  # by butler

    async def put(self, new: Sequence[NewSecret]) -> None:
        """Store secrets. If one of them cannot be stored, none is (see the module's text for crashes)."""
        self.check_scopes({secret.scope for secret in new})
        async with self._transactions() as open_in:
            # Always in the same order, so that two concurrent imports do not deadlock.
            for secret in sorted(new, key=lambda secret: (secret.scope, secret.name)):
                connection = open_in[self._database_of(secret.scope)]
                await secrets.put(connection, self.key, secret)
        await self._mirror({secret.scope for secret in new})

    async def delete(self, scope: str, name: str) -> None:
        secrets.check_name(name)
        async with self._transactions() as open_in:
            gone = await secrets.remove(open_in[self._database_of(scope)], scope, name)
        if not gone:
            raise NotFound(
                f"there is no secret {name} for {scope}", hint="`butlers secrets list` shows all"
            )
        await self._mirror({scope})

    async def read(self, name: str) -> str | None:
        """Return the value of a shared secret, or None."""
        async with self._transactions() as open_in:
            connection = open_in[self.provisioner.shared_database]
            return await secrets.find(connection, self.key, name, (SHARED_SCOPE,))

    async def entries(self) -> list[SecretEntry]:
        """List all secrets, without their values."""
        found: dict[tuple[str, str], SecretEntry] = {}
        async with self._transactions() as open_in:
            for database, connection in open_in.items():
                for entry in await secrets.entries(connection, self.key):
                    if database == self._database_of(entry.scope):
                        found[entry.scope, entry.name] = entry
        return [found[key] for key in sorted(found)]

    def check_scopes(self, scopes: set[str]) -> None:
        """Raise NotFound for a scope that is neither shared nor a butler."""
        if unknown := sorted(scopes - {SHARED_SCOPE, *self.databases}):
            known = ", ".join((SHARED_SCOPE, *sorted(self.databases)))
            raise NotFound(
                f"there is no butler {', '.join(map(repr, unknown))}", hint=f"scopes are: {known}"
            )

    def _database_of(self, scope: str) -> str:
        # The secrets of a butler that left the roster can still be listed and deleted.
        return self.databases.get(scope, self.provisioner.shared_database)

    @property
    def _all_databases(self) -> list[str]:
        return sorted({self.provisioner.shared_database, *self.databases.values()})

    @asynccontextmanager
    async def _transactions(self) -> AsyncIterator[dict[str, Connection]]:
        """Open one transaction in each database; they commit one after the other at the end."""
        async with AsyncExitStack() as stack:
            connections: dict[str, Connection] = {}
            for database in self._all_databases:
                login = await self.provisioner.provision_shared(database)
                connection = connection_to(login, "butlers:secrets")
                connections[database] = await stack.enter_async_context(connection)
            async with AsyncExitStack() as work:
                for opened in connections.values():
                    await work.enter_async_context(opened.transaction())
                yield connections

    async def _mirror(self, changed: set[str]) -> None:
        if SHARED_SCOPE not in changed:
            return
        for database in self._all_databases:
            await self.provisioner.mirror_shared(database)


@asynccontextmanager
async def open_vault(
    settings: Settings, databases: Mapping[str, str], *, isolated: bool
) -> AsyncIterator[Vault]:
    """Open the vault of a home, starting the database server if none runs."""
    key = MasterKey.load(settings)
    async with database_server(settings) as admin:
        provisioner = Provisioner(admin, FleetKey.load(settings.home), isolated=isolated)
        yield Vault(provisioner, key, databases)
