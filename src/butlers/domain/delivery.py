"""What goes out: a request to deliver, and the proof that it was."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Literal
from uuid import UUID

from butlers.domain.strict import STRICT


class Intent(StrEnum):
    SEND = "send"
    REPLY = "reply"


@dataclass(frozen=True, slots=True)
class DeliveryRequest:
    delivery_id: UUID
    origin: str
    intent: Intent
    channel: str
    target: str  # whom on that channel: the endpoint a reply goes back to
    message: str
    request_id: UUID | None = None
    thread: str | None = None
    trace_id: str | None = None  # of the work that caused it
    ordinal: int = 0  # the how-manieth such message of this request
    schema_version: Literal["notify.v1"] = "notify.v1"
    __pydantic_config__ = STRICT

    @property
    def idempotency_key(self) -> str:
        """The same notification of the same request is one delivery, however often it is asked for."""
        if self.request_id is None:
            return str(self.delivery_id)
        parts = (
            str(self.request_id),
            self.origin,
            self.intent,
            self.channel,
            self.target,
            self.message,
            str(self.ordinal),
        )
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class DeliveryReceipt:
    delivery_id: UUID
    channel: str
    provider_message_id: str
    delivered_at: datetime
