"""The lineage of one message: set once at the door, carried unchanged to the reply."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from butlers.domain.strict import STRICT

OWNER = "owner"
BLOCKED = "blocked"


@dataclass(frozen=True, slots=True)
class RequestContext:
    request_id: UUID
    received_at: datetime
    source_channel: str
    source_endpoint_identity: str
    source_sender_identity: str
    source_thread_identity: str | None = None
    source_event_identity: str | None = None  # the platform's id of the message itself
    sender_roles: tuple[str, ...] = ()  # what the sender is to us, as the door found it
    trace_id: str | None = None
    __pydantic_config__ = STRICT

    @property
    def is_owners(self) -> bool:
        return OWNER in self.sender_roles

    @property
    def conversation(self) -> str:
        """What keeps its order: a thread, or where there is none, what one sender says."""
        whom = self.source_thread_identity or f"from {self.source_sender_identity}"
        return joined(self.source_channel, self.source_endpoint_identity, whom)


def joined(*parts: str) -> str:
    """One key of several parts, so that "a:b" and "c" are not "a" and "b:c"."""
    return ":".join(part.replace("%", "%25").replace(":", "%3A") for part in parts)
