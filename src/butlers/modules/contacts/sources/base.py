"""The interface of address books: changes since a cursor, in batches."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from butlers.domain.errors import ButlersError
from butlers.modules.contacts.card import ContactCard

BATCH = 500  # cards that are stored in one transaction


class CursorLost(ButlersError):
    """The server does not know the cursor any more; everything is fetched again."""

    code = "cursor_lost"
    retryable = True


@dataclass(frozen=True, slots=True)
class SourceCard:
    """A card of an address book; ``card`` is None if it names nobody."""

    external_id: str
    etag: str | None
    card: ContactCard | None


@dataclass(frozen=True, slots=True)
class SourceBatch:
    cards: tuple[SourceCard, ...] = ()
    removed: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()  # known cards that a full synchronization has seen again
    cursor: str | None = None  # in the last batch: where the next synchronization begins


class ContactSource(Protocol):
    def pull(
        self, cursor: str | None, known: Mapping[str, str | None]
    ) -> AsyncIterator[SourceBatch]:
        """Yield the changes since the cursor; without one, every card.

        ``known`` has the ETags of known cards, which need not be fetched if they are the same. Raises
        CursorLost, CredentialRefused, ChannelUnavailable or ChannelBusy.
        """
