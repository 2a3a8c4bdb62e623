"""Where a message goes, why, and what travels with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from butlers.domain.request import RequestContext
from butlers.domain.strict import STRICT

FALLBACK_RULE = "fallback"


@dataclass(frozen=True, slots=True)
class RouteDecision:
    target: str
    rule: str  # which step of triage decided: trigger, fallback, …
    reason: str
    __pydantic_config__ = STRICT


@dataclass(frozen=True, slots=True)
class RouteRequest:
    request: RequestContext
    target: str
    text: str
    decision: RouteDecision
    schema_version: Literal["route.v1"] = "route.v1"
    __pydantic_config__ = STRICT
