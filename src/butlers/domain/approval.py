"""Approvals: risk tiers, the states of a pending action, and the question about one call."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from uuid import UUID

from butlers.domain.message import RequestContext
from butlers.domain.provenance import Provenance


class RiskTier(StrEnum):
    LOW = "low"  # asked once a day, together
    MEDIUM = "medium"
    HIGH = "high"  # a standing rule needs a constraint and a bound
    CRITICAL = "critical"  # the same, and asked at once

    @property
    def is_strict(self) -> bool:
        return self in (RiskTier.HIGH, RiskTier.CRITICAL)


class ActionStatus(StrEnum):
    PENDING = "pending"
    APPROVED = "approved"  # decided; a tool that runs long has not ended yet
    REJECTED = "rejected"
    EXPIRED = "expired"
    EXECUTED = "executed"  # its result is kept, also if it failed


@dataclass(frozen=True, slots=True)
class AskReason:
    """The reason why a call waits for the owner."""

    action: str  # completes "the butler wants to …"
    why: str
    risk: RiskTier | None = None  # None: as configured for the tool


@dataclass(frozen=True, slots=True)
class Question:
    """A call that waits for the owner, with everything that the owner is shown."""

    tool: str
    arguments: dict[str, Any]
    reason: AskReason
    source: Provenance
    request: RequestContext | None = None  # where the outcome is told
    # Questions of one group are shown together. A group that is decided together has one reason.
    group: str | None = None
    decides_group: bool = False
    summary: str | None = None  # made by the daemon; None: from the reason and the arguments
    reversible: bool = False


@dataclass(frozen=True, slots=True)
class PendingApproval:
    """The answer to a call that now waits for the owner."""

    action_id: UUID
    message: str
    risk_tier: RiskTier

    def as_dict(self) -> dict[str, Any]:
        return {
            "status": "pending_approval",
            "action_id": str(self.action_id),
            "message": self.message,
            "risk_tier": str(self.risk_tier),
        }
