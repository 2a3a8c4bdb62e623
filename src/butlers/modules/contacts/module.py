"""The contacts module: its configuration, its address books and their synchronization."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

from butlers.db.database import Database
from butlers.domain.clock import SystemClock
from butlers.domain.errors import ConfigInvalid
from butlers.modules.base import CredentialNeed, CredentialSource, Module, ToolMeta
from butlers.modules.contacts import accounts, tools
from butlers.modules.contacts.addresses import region_of_zone
from butlers.modules.contacts.book import ContactBook
from butlers.modules.contacts.config import ContactsConfig
from butlers.modules.contacts.sources.base import ContactSource
from butlers.modules.contacts.sync import ContactSync, SyncOwner
from butlers.modules.contacts.worker import QUEUE, ContactSyncWorker, request_sync
from butlers.secrets.credentials import CredentialMissing
from butlers.tools.role import QueueWork, RoleParts


class ContactsModule(Module, SyncOwner):
    name = "contacts"
    config_schema = ContactsConfig
    tools = tools.TOOLS

    config: ContactsConfig

    def __init__(self) -> None:
        self._database: Database | None = None
        self._store: CredentialSource | None = None
        self._zone = "UTC"

    def migration_revisions(self) -> str:
        return self.name

    def tool_metadata(self) -> dict[str, ToolMeta]:
        return {"contacts_write": ToolMeta({"message": True})}

    def credentials(self) -> Sequence[CredentialNeed]:
        # A missing password is that account's failure, and not the whole module's.
        return [CredentialNeed(one.secret, required=False) for one in self._accounts()]

    async def on_startup(
        self, config: Any, db: Database, credential_store: CredentialSource | None = None
    ) -> None:
        self._database, self._store = db, credential_store
        async with db.transaction() as connection:
            configured = list(self._account_names())
            await accounts.keep_accounts(connection, configured)
            for kind, name in configured:
                await request_sync(connection, kind, name)

    def workers(self, parts: RoleParts) -> Sequence[QueueWork]:
        self._zone = parts.config.timezone
        if not any(self._account_names()):
            return ()
        worker = ContactSyncWorker(
            parts.config.name,
            parts.database,
            parts.clock,
            self.sync,
            self.open_source,
            timedelta(minutes=self.config.interval_minutes),
        )
        return (QueueWork(QUEUE, worker.process, 1),)

    @property
    def sync(self) -> ContactSync:
        if self._database is None:
            raise RuntimeError("the contacts module is not started")
        return ContactSync(
            self._database,
            SystemClock(),
            self.book,
            self.config.region or region_of_zone(self._zone),
            timedelta(days=self.config.full_days),
        )

    @property
    def book(self) -> ContactBook:
        for module in self.siblings:
            if isinstance(module, ContactBook):
                return module
        raise ConfigInvalid(
            "no module of this butler keeps people",
            hint="address books belong to the relationship butler",
        )

    def open_source(self, kind: str, name: str) -> ContactSource | None:
        """Return the configured address book, or None if it is disconnected."""
        if kind == "carddav" and (dav := self.config.carddav.get(name)) is not None:
            from butlers.modules.contacts.sources.carddav import CarddavSource

            return CarddavSource(dav.url, dav.user, lambda: self._secret(dav.secret))
        if kind == "google" and (google := self.config.google.get(name)) is not None:
            from butlers.modules.contacts.sources.google import GoogleSource

            return GoogleSource(google, self._secret)
        return None

    def _accounts(self) -> Iterator[Any]:
        yield from self.config.carddav.values()
        yield from self.config.google.values()

    def _account_names(self) -> Iterator[tuple[str, str]]:
        yield from (("carddav", name) for name in self.config.carddav)
        yield from (("google", name) for name in self.config.google)

    async def _secret(self, name: str) -> str:
        found = await self._store.resolve(name) if self._store else None
        if found is None:
            raise CredentialMissing(
                f"the credential {name} is not set",
                hint="run `butlers connect` again for this account",
            )
        return found
