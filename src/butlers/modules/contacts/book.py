"""The interface of the module that keeps the people: contacts are synchronized into it.

There is one set of people. The Relationship butler keeps them with everything that the owner knows about
them; address books are sources of names, addresses and dates of the same people.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from butlers.db.database import Connection
from butlers.domain.errors import NotFound
from butlers.modules.contacts.addresses import comparable, region_of_zone
from butlers.modules.contacts.card import CardChange, ContactCard, ContactWay
from butlers.modules.contacts.config import ContactsConfig
from butlers.tools.context import CallContext

SOURCE_PREFIX = "address book "  # of the sender in rows that a synchronization wrote
Address = tuple[str, str]  # kind, and the value in the form in which it is compared


@dataclass(frozen=True, slots=True)
class KnownPerson:
    person_id: UUID
    name: str


class ContactBook(ABC):
    """Base of a module that keeps people. Each method works in the caller's transaction.

    Rows that a source wrote have a sender that starts with ``SOURCE_PREFIX``. A source changes and deletes
    no other rows.
    """

    @abstractmethod
    async def find_by_address(
        self, connection: Connection, addresses: Collection[Address]
    ) -> dict[Address, set[UUID]]:
        """Return the people that have these addresses."""

    @abstractmethod
    async def find_by_name(
        self, connection: Connection, names: Collection[str]
    ) -> dict[str, set[UUID]]:
        """Return the people that have these names (in lower case), as name or alias."""

    @abstractmethod
    async def add_people(
        self, connection: Connection, people: Mapping[UUID, ContactCard], region: str | None
    ) -> None:
        """Add new people under these ids."""

    @abstractmethod
    async def change_people(
        self, connection: Connection, changes: Mapping[UUID, CardChange], region: str | None
    ) -> None:
        """Change people as a source says."""

    @abstractmethod
    async def remove_empty(self, connection: Connection, people: Collection[UUID]) -> int:
        """Remove those people that a source added and of whom nothing else is known."""

    @abstractmethod
    async def current_ids(
        self, connection: Connection, people: Collection[UUID]
    ) -> dict[UUID, UUID]:
        """Return the ids under which people are kept now, after merges. Deleted people are left out."""

    @abstractmethod
    async def require_person(self, ctx: CallContext, text: str) -> KnownPerson:
        """Return the person that a text names. Raises NotFound, or InvalidArguments for several."""

    @abstractmethod
    async def ways_of(self, connection: Connection, person_id: UUID) -> Sequence[ContactWay]:
        """Return the ways to reach a person, the preferred ones first."""


def contact_address(ctx: CallContext, kind: str, value: str) -> str | None:
    """Return an address in the form in which contacts compare it, or None if it identifies nobody."""
    try:
        region = ContactsConfig.of(ctx).region
    except NotFound:
        region = None  # the butler synchronizes no address books
    return comparable(kind, value, region or region_of_zone(ctx.services.config.timezone))
