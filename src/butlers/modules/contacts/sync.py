"""Synchronization of one address book: match its cards with people, and apply its changes.

A card is matched by its link, then by an address, then by its name; a match by name alone waits for the
owner. Each batch is one transaction, and a repeated batch changes nothing: the links know what each card
said last. The cursor moves after the last batch, so a crash repeats batches and loses none.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from uuid import UUID

from butlers.db.database import Connection, Database, set_provenance
from butlers.domain import tasks
from butlers.domain.clock import Clock, uuid7
from butlers.domain.errors import StateConflict
from butlers.domain.faults import kill_point
from butlers.domain.provenance import Provenance, Trust
from butlers.modules.contacts import accounts, links
from butlers.modules.contacts.accounts import SourceAccount
from butlers.modules.contacts.addresses import comparable
from butlers.modules.contacts.book import SOURCE_PREFIX, Address, ContactBook
from butlers.modules.contacts.card import NOTHING, CardChange, ContactCard
from butlers.modules.contacts.links import SourceLink
from butlers.modules.contacts.sources.base import (
    BATCH,
    ContactSource,
    CursorLost,
    SourceBatch,
    SourceCard,
)

FEW = 20  # so many removals need no confirmation
Names = Mapping[str, set[UUID]]


class TooManyRemovals(StateConflict):
    """An address book has lost most of its contacts."""

    code = "too_many_removals"


@dataclass(slots=True)
class SyncCounts:
    """Numbers of a synchronization."""

    added: int = 0
    matched: int = 0
    changed: int = 0
    removed: int = 0
    to_confirm: int = 0

    def as_dict(self) -> dict[str, int]:
        return {
            "added": self.added,
            "matched": self.matched,
            "changed": self.changed,
            "removed": self.removed,
            "to_confirm": self.to_confirm,
        }


@dataclass(slots=True)
class _BatchPlan:
    """Changes that one batch makes."""

    people: dict[UUID, ContactCard] = field(default_factory=dict)
    changes: dict[UUID, CardChange] = field(default_factory=dict)
    links: list[SourceLink] = field(default_factory=list)


class ContactSync:
    """Applies the changes of address books to the people of one butler."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        book: ContactBook,
        region: str | None,
        full_every: timedelta = timedelta(days=6),
    ) -> None:
        self._database = database
        self._clock = clock
        self._book = book
        self._region = region
        self._full_every = full_every

    async def run(
        self, account: SourceAccount, source: ContactSource, *, may_remove: bool = False
    ) -> SyncCounts:
        """Synchronize an address book.

        Everything is fetched at the first time, when the last full synchronization is too old, and when
        the server has lost the cursor. Raises TooManyRemovals, unless ``may_remove``, when most of the
        known contacts are gone.
        """
        now = self._clock.now()
        is_old = account.full_at is None or now - account.full_at >= self._full_every
        try:
            cursor = None if is_old else account.cursor
            return await self._pull(account, source, cursor, may_remove)
        except CursorLost:
            return await self._pull(account, source, None, may_remove)

    async def _pull(
        self, account: SourceAccount, source: ContactSource, cursor: str | None, may_remove: bool
    ) -> SyncCounts:
        counts, run_id, full = SyncCounts(), uuid7(), cursor is None
        async with self._database.transaction() as connection:
            known = await links.read_etags(connection, account.account_id)
        seen: set[str] = set()
        removed: list[str] = []
        async for batch in _one_ahead(source.pull(cursor, known)):
            cursor = batch.cursor
            seen.update(batch.unchanged, (one.external_id for one in batch.cards))
            removed += batch.removed
            await self._store(account, batch, run_id, counts)
            kill_point("contacts.stored")
        gone = sorted(set(known) - seen) if full else [one for one in removed if one in known]
        if not may_remove:
            _check_removals(account, len(gone), len(known))
        await self._remove(account, gone, run_id, counts)
        kill_point("contacts.removed")
        async with self._database.transaction() as connection:
            now = self._clock.now()
            await accounts.keep_result(
                connection, account.account_id, now, cursor, counts.as_dict(), full=full
            )
        return counts

    async def _store(
        self, account: SourceAccount, batch: SourceBatch, run_id: UUID, counts: SyncCounts
    ) -> None:
        for start in range(0, len(batch.cards), BATCH):
            async with self._database.transaction() as connection:
                await set_provenance(connection, _provenance(account, run_id))
                cards = batch.cards[start : start + BATCH]
                await self.apply(connection, account.account_id, cards, counts)

    async def _remove(
        self, account: SourceAccount, gone: Sequence[str], run_id: UUID, counts: SyncCounts
    ) -> None:
        for start in range(0, len(gone), BATCH):
            async with self._database.transaction() as connection:
                await set_provenance(connection, _provenance(account, run_id))
                part = gone[start : start + BATCH]
                await self.forget(connection, account.account_id, part, counts)

    # -- one batch, in the caller's transaction -----------------------------------------------------

    async def apply(
        self,
        connection: Connection,
        account_id: UUID,
        cards: Iterable[SourceCard],
        counts: SyncCounts,
    ) -> None:
        """Apply cards of an address book."""
        named = {one.external_id: one for one in cards if one.card is not None}
        known = await links.read_links(connection, account_id, named)
        linked = [link.person_id for link in known.values() if link.person_id]
        current = await self._book.current_ids(connection, linked)
        plan = _BatchPlan()
        unknown: dict[str, SourceCard] = {}
        for external_id, one in named.items():
            link = known.get(external_id)
            if link is None or (link.person_id and link.person_id not in current):
                unknown[external_id] = one
            else:
                self._plan_change(plan, link, one, current, counts)
        await self._plan_unknown(connection, account_id, plan, unknown, counts)
        await self._carry_out(connection, account_id, plan)

    def _plan_change(
        self,
        plan: _BatchPlan,
        link: SourceLink,
        one: SourceCard,
        current: Mapping[UUID, UUID],
        counts: SyncCounts,
    ) -> None:
        """Plan the change of a linked person. A card that waits for its owner's answer is only kept."""
        assert one.card is not None
        same = link.card.fields() == one.card.fields()
        if not same and link.person_id:
            plan.changes[current[link.person_id]] = CardChange(link.card, one.card)
            counts.changed += 1
        if not same or link.etag != one.etag:
            plan.links.append(replace(link, etag=one.etag, card=one.card))

    async def _plan_unknown(
        self,
        connection: Connection,
        account_id: UUID,
        plan: _BatchPlan,
        unknown: Mapping[str, SourceCard],
        counts: SyncCounts,
    ) -> None:
        """Plan cards without a link: the same person by address, perhaps the same by name, or a new one."""
        if not unknown:
            return
        candidates = await self._candidates(connection, account_id, unknown)
        taken = set(plan.changes)
        for external_id, one in unknown.items():
            assert one.card is not None
            link = links.new_link(account_id, external_id, one.etag, one.card)
            by_address, by_name = candidates[external_id]
            if len(by_address - taken) == 1:
                (person_id,) = by_address - taken
                taken.add(person_id)
                plan.changes[person_id] = CardChange(NOTHING, one.card)
                plan.links.append(replace(link, person_id=person_id))
                counts.matched += 1
            elif len(by_name - taken) == 1 and not by_address:
                plan.links.append(replace(link, candidate_id=next(iter(by_name - taken))))
                counts.to_confirm += 1
            else:
                person_id = uuid7()
                plan.people[person_id] = one.card
                plan.links.append(replace(link, person_id=person_id))
                counts.added += 1

    async def _candidates(
        self, connection: Connection, account_id: UUID, unknown: Mapping[str, SourceCard]
    ) -> dict[str, tuple[set[UUID], set[UUID]]]:
        """Return, by card, the people with one of its addresses and those with its name.

        Cards of one address book are different people, also if they share an address.
        """
        addresses = {key: self._addresses(one.card) for key, one in unknown.items()}
        names = {key: one.card.name.lower() for key, one in unknown.items() if one.card}
        wanted = {address for found in addresses.values() for address in found}
        by_address = await self._book.find_by_address(connection, wanted)
        by_name = await self._book.find_by_name(connection, set(names.values()))
        people = {one for found in (*by_address.values(), *by_name.values()) for one in found}
        here = await links.linked_people(connection, account_id, people)
        return {
            key: (
                {one for address in addresses[key] for one in by_address.get(address, ())} - here,
                set(by_name.get(names[key], ())) - here,
            )
            for key in unknown
        }

    def _addresses(self, card: ContactCard | None) -> list[Address]:
        found: list[Address] = []
        for way in card.ways if card else ():
            value = comparable(way.kind, way.value, self._region)
            if value is not None:
                found.append((way.kind, value))
        return found

    async def _carry_out(self, connection: Connection, account_id: UUID, plan: _BatchPlan) -> None:
        if plan.people:
            await self._book.add_people(connection, plan.people, self._region)
        if plan.changes:
            changes = await self._spare_others(connection, account_id, plan.changes)
            await self._book.change_people(connection, changes, self._region)
        if plan.links:
            await links.save_links(connection, plan.links)

    async def _spare_others(
        self, connection: Connection, account_id: UUID, changes: Mapping[UUID, CardChange]
    ) -> dict[UUID, CardChange]:
        """Return the changes without removals of what another address book says as well."""
        others = await links.other_cards(connection, account_id, changes)
        spared = dict(changes)
        for person_id, cards in others.items():
            change = spared[person_id]
            ways = {way.key for card in cards for way in card.ways}
            dates = {one.label for card in cards for one in card.dates}
            before = replace(
                change.before,
                ways=tuple(way for way in change.before.ways if way.key not in ways),
                dates=tuple(one for one in change.before.dates if one.label not in dates),
            )
            spared[person_id] = replace(change, before=before)
        return spared

    async def forget(
        self,
        connection: Connection,
        account_id: UUID,
        external_ids: Sequence[str],
        counts: SyncCounts,
    ) -> None:
        """Remove what these cards said. People of whom nothing else is known are removed."""
        known = await links.read_links(connection, account_id, external_ids)
        linked = [link.person_id for link in known.values() if link.person_id]
        current = await self._book.current_ids(connection, linked)
        changes = {
            current[link.person_id]: CardChange(link.card, replace(NOTHING, name=link.card.name))
            for link in known.values()
            if link.person_id in current
        }
        changes = await self._spare_others(connection, account_id, changes)
        await self._book.change_people(connection, changes, self._region)
        await links.delete_links(connection, known.values())
        others = await links.other_cards(connection, account_id, changes)
        await self._book.remove_empty(connection, set(changes) - set(others))
        counts.removed += len(known)

    async def confirm(self, connection: Connection, link: SourceLink, *, same: bool) -> UUID:
        """Settle a card that waited: it is the candidate, or somebody new. Return the person."""
        plan = _BatchPlan()
        if same:
            assert link.candidate_id is not None
            current = await self._book.current_ids(connection, [link.candidate_id])
            if link.candidate_id in current:
                person_id = current[link.candidate_id]
                plan.changes[person_id] = CardChange(NOTHING, link.card)
        if not plan.changes:
            person_id = uuid7()
            plan.people[person_id] = link.card
        plan.links.append(replace(link, person_id=person_id, candidate_id=None))
        await self._carry_out(connection, link.account_id, plan)
        return person_id


class SyncOwner(ABC):
    """The module that synchronizes, as tools find it."""

    @property
    @abstractmethod
    def sync(self) -> ContactSync: ...


async def _one_ahead(batches: AsyncIterator[SourceBatch]) -> AsyncIterator[SourceBatch]:
    """Yield the batches, and fetch the next one while the caller stores the current one."""
    following = asyncio.ensure_future(anext(batches, None))
    try:
        while (batch := await following) is not None:
            following = asyncio.ensure_future(anext(batches, None))
            yield batch
    finally:
        await tasks.end(following)


def _provenance(account: SourceAccount, run_id: UUID) -> Provenance:
    return Provenance(Trust.OWNER, f"{SOURCE_PREFIX}{account.label}", run_id)


def _check_removals(account: SourceAccount, gone: int, known: int) -> None:
    if gone > FEW and gone * 2 > known:
        raise TooManyRemovals(
            f"{account.label} has lost {gone} of {known} contacts; nothing was removed",
            hint="if you deleted them, call contacts_sync_now with may_remove = true",
        )
