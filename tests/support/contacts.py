"""An address book in memory, and a butler whose contacts tests read."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime

from butlers.db.database import Database
from butlers.modules.contacts import ContactsModule, accounts
from butlers.modules.contacts.accounts import SourceAccount
from butlers.modules.contacts.card import ContactCard, ContactWay
from butlers.modules.contacts.sources.base import CursorLost, SourceBatch, SourceCard
from butlers.modules.contacts.sync import ContactSync, SyncCounts
from support.in_process import InProcessButler


class MemorySource:
    """An address book that counts its changes, and can lose its tokens or break after some batches."""

    def __init__(self, batch: int = 100) -> None:
        self.cards: dict[str, tuple[int, ContactCard]] = {}
        self.deleted: dict[str, int] = {}
        self.version = 1
        self.oldest = 0  # tokens before this version are lost
        self.pulls: list[str | None] = []
        self.breaks_after: int | None = None
        self._batch = batch

    def put(self, key: str, name: str, *ways: tuple[str, str], **fields: str) -> None:
        self.version += 1
        found = tuple(ContactWay(kind, value) for kind, value in ways)  # type: ignore[arg-type]
        self.cards[key] = (self.version, ContactCard(name, ways=found, **fields))  # type: ignore[arg-type]

    def delete(self, key: str) -> None:
        self.version += 1
        del self.cards[key]
        self.deleted[key] = self.version

    async def pull(
        self, cursor: str | None, known: Mapping[str, str | None]
    ) -> AsyncIterator[SourceBatch]:
        self.pulls.append(cursor)
        since = int(cursor or 0)
        if cursor and since < self.oldest:
            raise CursorLost("lost")
        changed = [
            SourceCard(key, str(version), card)
            for key, (version, card) in self.cards.items()
            if version > since
        ]
        for number, start in enumerate(range(0, len(changed), self._batch)):
            if self.breaks_after == number:
                raise ConnectionResetError
            yield SourceBatch(tuple(changed[start : start + self._batch]))
        gone = tuple(key for key, version in self.deleted.items() if version > since)
        yield SourceBatch(removed=gone, cursor=str(self.version))


class ContactsButler:
    """The Relationship butler with one address book in memory for each name."""

    def __init__(self, butler: InProcessButler) -> None:
        self.butler = butler
        (self.module,) = [m for m in butler.butler.modules if isinstance(m, ContactsModule)]

    @property
    def sync(self) -> ContactSync:
        return self.module.sync

    @property
    def database(self) -> Database:
        return self.butler.butler.database

    async def connect(self, *names: str) -> None:
        async with self.database.transaction() as connection:
            await accounts.keep_accounts(connection, [("carddav", name) for name in names])

    async def account(self, name: str = "home") -> SourceAccount:
        async with self.database.transaction() as connection:
            found = await accounts.find_account(connection, "carddav", name)
        assert found is not None
        return found

    async def pull(self, source: MemorySource, name: str = "home", **options: bool) -> SyncCounts:
        return await self.sync.run(await self.account(name), source, **options)

    async def people(self) -> dict[str, dict[str, str]]:
        """Return the ways to reach each person, by name."""
        rows = await self.butler.rows(
            """
            SELECT p.name, w.kind, w.value FROM people AS p LEFT JOIN contact_ways AS w
            ON w.person_id = p.id WHERE p.merged_into IS NULL ORDER BY p.name, w.id
            """
        )
        found: dict[str, dict[str, str]] = {}
        for row in rows:
            ways = found.setdefault(row["name"], {})
            if row["kind"]:
                ways[row["kind"]] = row["value"]
        return found

    async def forget_full(self, name: str = "home") -> None:
        """Let the last full synchronization be long ago."""
        async with self.database.transaction() as connection:
            await connection.execute(
                "UPDATE contacts_sync_state SET full_at = $1", datetime(2020, 1, 1, tzinfo=UTC)
            )
