"""One ephemeral session: what it is asked, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any
from uuid import UUID

from butlers.domain.request import RequestContext


class Outcome(StrEnum):
    OK = "ok"
    NO_MATCH = "no-match"  # no reflex knows this text
    TOOL_FAILED = "tool-failed"
    TIMED_OUT = "timed-out"
    CRASHED = "crashed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class SessionRequest:
    session_id: UUID
    prompt: str
    trigger_source: str  # route | trigger | schedule:<name>
    request: RequestContext | None = None
    request_id: UUID | None = None  # keys the call journal; a retry of the work keeps it
    system_prompt: str = ""


@dataclass(frozen=True, slots=True)
class ToolCall:
    tool: str
    arguments: dict[str, Any]
    ok: bool
    result: Any = None


@dataclass(frozen=True, slots=True)
class SessionResult:
    outcome: Outcome
    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    usage: dict[str, int] = field(default_factory=dict)
    error: str | None = None

    @property
    def ok(self) -> bool:
        return self.outcome is Outcome.OK
