"""One ephemeral session: what it is asked, under which terms, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Any
from uuid import UUID

from butlers.domain.message import Attachment
from butlers.domain.request import RequestContext
from butlers.domain.route import Turn


class Outcome(StrEnum):
    OK = "ok"
    NO_MATCH = "no-match"  # no reflex knows this text
    TOOL_FAILED = "tool-failed"  # the one call of a reflex
    DENIED = "denied"  # it tried what its access level forbids, and did nothing else
    MCP_UNAVAILABLE = "mcp-unavailable"  # the CLI did not reach its butler
    NO_CREDENTIAL = "no-credential"
    RATE_LIMITED = "rate-limited"
    OVER_BUDGET = "over-budget"
    TIMED_OUT = "timed-out"
    CRASHED = "crashed"
    CANCELLED = "cancelled"


class Access(StrEnum):
    """What a session may touch beside its butler's tools."""

    SEALED = "sealed"  # nothing
    WORKSPACE = (
        "workspace"  # read the config folder, write AGENTS.md, list and run its skills' scripts
    )
    FULL = "full"


@dataclass(frozen=True, slots=True)
class SessionRequest:
    session_id: UUID
    prompt: str
    trigger_source: str  # route | trigger | schedule:<name>
    request: RequestContext | None = None
    request_id: UUID | None = None  # keys the call journal; a retry of the work keeps it
    tools: frozenset[str] | None = None  # those it is given; None: all that a session may call
    task: str | None = None  # what is to be done with a message; None: answer it
    conversation: tuple[Turn, ...] = ()  # what was said lately where the message came from
    attachments: tuple[Attachment, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolCall:
    tool: str
    arguments: dict[str, Any]
    ok: bool
    result: Any = None
    of_cli: bool = False  # a tool of the CLI itself, which the butler only hears of
    denied: bool = False  # by the session's access level


@dataclass(frozen=True, slots=True)
class Usage:
    """What the model was given and gave, as the CLI counted it; None where it did not say."""

    input_tokens: int | None = None  # all of them, cached ones included
    output_tokens: int | None = None
    cached_tokens: int | None = None  # those of the input that came from a cache
    cost_usd: Decimal | None = None
    written_tokens: int = 0  # those of the input that were put into a cache


@dataclass(frozen=True, slots=True)
class Exit:
    """How the process of a session ended, for whoever has to find out why."""

    code: int | None  # negative: the signal that ended it
    seconds: float
    stderr: str = ""  # its end
    why: str = "left"  # by itself, or what it was ended for


@dataclass(frozen=True, slots=True)
class SessionResult:
    outcome: Outcome
    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    usage: Usage = Usage()
    error: str | None = None
    model: str | None = None  # as the CLI named it
    denials: tuple[str, ...] = ()  # what it tried and was refused by its access level
    exit: Exit | None = None  # None: no process was started
    retry_after_s: float | None = None  # when a model that takes no more said how long to wait
    outside: frozenset[str] = frozenset()  # the tools by which it read what others may have written

    @property
    def ok(self) -> bool:
        return self.outcome is Outcome.OK
