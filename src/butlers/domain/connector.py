"""What a connector says of itself, and what we make of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal
from uuid import UUID

from butlers.domain.strict import STRICT


class ConnectorState(StrEnum):
    HEALTHY = "healthy"
    DEGRADED = "degraded"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Counters:
    """Since the instance began."""

    messages_ingested: int = 0
    messages_failed: int = 0
    source_api_calls: int = 0
    checkpoint_saves: int = 0
    dedupe_accepted: int = 0
    __pydantic_config__ = STRICT


@dataclass(frozen=True, slots=True)
class Heartbeat:
    kind: str
    endpoint_identity: str
    instance_id: UUID
    sent_at: datetime
    state: ConnectorState = ConnectorState.HEALTHY
    error: str | None = None
    version: str | None = None
    uptime_s: float = 0
    counters: Counters = field(default_factory=Counters)
    schema_version: Literal["connector.heartbeat.v1"] = "connector.heartbeat.v1"
    __pydantic_config__ = STRICT


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """How far a connector has come in its source; everything before it was accepted."""

    cursor: dict[str, Any]
    saved_at: datetime
