"""Records that butlers and connectors report about themselves to the Switchboard."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal
from uuid import UUID

from butlers.domain.json_safe import STRICT


@dataclass(frozen=True, slots=True)
class Registration:
    name: str
    url: str
    description: str
    infrastructure: bool = False  # never a target of users' messages
    reflexes: tuple[str, ...] = ()  # patterns of whole messages that it answers without a model
    triggers: tuple[str, ...] = ()  # patterns that a message for it may contain
    capabilities: tuple[str, ...] = ()  # names of its modules
    contract_min: int = 1
    contract_max: int = 1
    liveness_ttl_s: float = 300
    __pydantic_config__ = STRICT


class ConnectorState(StrEnum):
    HEALTHY = "healthy"
    DEGRADED = "degraded"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Counters:
    """Counters since the start of the connector instance."""

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
    """Position of a connector in its source; everything before it was accepted."""

    cursor: dict[str, Any]
    saved_at: datetime
