"""Provenance: the message, session and sender that a stored row comes from, and whether to trust it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID


class Trust(StrEnum):
    OWNER = "owner"  # the owner's own words, or the daemon's
    OUTSIDE = "outside"  # words of other people, or of a session that has read such words


@dataclass(frozen=True, slots=True)
class Provenance:
    trust: Trust
    sender: str | None = None
    request_id: UUID | None = None
    session_id: UUID | None = None

    @property
    def is_trusted(self) -> bool:
        return self.trust is Trust.OWNER

    def described(self) -> str:
        """Name the source in a sentence."""
        return self.sender or "an unknown sender"

    def to_json(self) -> str:
        """Return the form that the database triggers read (``butlers.provenance``)."""
        return json.dumps(
            {
                "trust": self.trust,
                "sender": self.sender,
                "request_id": str(self.request_id) if self.request_id else None,
                "session_id": str(self.session_id) if self.session_id else None,
            }
        )


# Written by the butler itself, not on behalf of a message.
DAEMON = Provenance(Trust.OWNER)
