"""Where a message goes, why, and what travels with it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from butlers.domain.message import Attachment
from butlers.domain.request import RequestContext
from butlers.domain.strict import STRICT

BY_RULE = "rule"  # one of the owner's
FALLBACK_RULE = "fallback"
CONTRACT = 1  # of the route envelope that we write


@dataclass(frozen=True, slots=True)
class RouteDecision:
    target: str
    rule: str  # which step of triage decided: rule, reflex, affinity, trigger, classified, fallback
    reason: str
    part: str | None = None  # of the message, where it is for several butlers; None: all of it
    after_previous: bool = False  # only when the part before it has been dealt with
    __pydantic_config__ = STRICT


@dataclass(frozen=True, slots=True)
class Turn:
    """One thing that was said lately in the same conversation."""

    speaker: Literal["person", "assistant"]
    text: str
    at: datetime
    __pydantic_config__ = STRICT


@dataclass(frozen=True, slots=True)
class RouteRequest:
    request: RequestContext
    target: str
    text: str
    decision: RouteDecision
    conversation: tuple[Turn, ...] = ()
    attachments: tuple[Attachment, ...] = ()
    report: bool = False  # the Switchboard waits to hear how it ended
    schema_version: Literal["route.v1"] = "route.v1"
    __pydantic_config__ = STRICT
