"""Who somebody is to us: known by the addresses they write from, trusted by their roles."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from butlers.domain.message import Channel
from butlers.domain.request import BLOCKED


def address(channel: str, identity: str) -> str:
    """How an address is kept, so that one person is not two: mail programs write it as they like."""
    plain = identity.strip()
    return plain.casefold() if channel == Channel.EMAIL else plain


@dataclass(frozen=True, slots=True)
class Contact:
    contact_id: UUID
    name: str
    roles: tuple[str, ...] = ()

    @property
    def is_blocked(self) -> bool:
        return BLOCKED in self.roles
