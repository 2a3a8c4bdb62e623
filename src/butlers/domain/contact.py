"""Who somebody is to us: known by the addresses they write from, trusted by their roles."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from butlers.domain.request import BLOCKED


@dataclass(frozen=True, slots=True)
class Contact:
    contact_id: UUID
    name: str
    roles: tuple[str, ...] = ()

    @property
    def is_blocked(self) -> bool:
        return BLOCKED in self.roles
