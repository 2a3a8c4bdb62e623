"""What a butler says of itself to the Switchboard."""

from __future__ import annotations

from dataclasses import dataclass

from butlers.domain.strict import STRICT


@dataclass(frozen=True, slots=True)
class Registration:
    name: str
    url: str
    description: str
    infrastructure: bool = False  # never a target for what users say
    reflexes: tuple[str, ...] = ()  # patterns of whole messages that it answers without a model
    triggers: tuple[str, ...] = ()  # patterns that a message for it may contain
    capabilities: tuple[str, ...] = ()  # what it has: its modules
    contract_min: int = 1
    contract_max: int = 1
    liveness_ttl_s: float = 300
    __pydantic_config__ = STRICT
