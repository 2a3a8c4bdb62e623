"""The lineage of one message: set once at the door, carried unchanged to the reply."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from butlers.domain.strict import STRICT


@dataclass(frozen=True, slots=True)
class RequestContext:
    request_id: UUID
    received_at: datetime
    source_channel: str
    source_endpoint_identity: str
    source_sender_identity: str
    source_thread_identity: str | None = None
    trace_id: str | None = None
    __pydantic_config__ = STRICT
