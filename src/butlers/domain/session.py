"""One ephemeral session: its request, its access level, and its result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from types import MappingProxyType
from typing import Any
from uuid import UUID

from butlers.domain.message import Attachment, RequestContext, Turn


class Outcome(StrEnum):
    OK = "ok"
    NO_MATCH = "no-match"  # no reflex matches the text
    TOOL_FAILED = "tool-failed"  # the one call of a reflex
    DENIED = "denied"  # all its calls were forbidden by its access level
    MCP_UNAVAILABLE = "mcp-unavailable"  # the CLI did not reach its butler
    NO_CREDENTIAL = "no-credential"
    NO_CREDIT = "no-credit"  # the account at the vendor is used up
    RATE_LIMITED = "rate-limited"
    MODEL_UNAVAILABLE = (
        "model-unavailable"  # an outage: no connection, a server error, a cut answer
    )
    REJECTED = "rejected"  # the model's API does not accept the request, now or later
    NO_ANSWER = "no-answer"  # it ended without an answer and had done nothing
    OVER_BUDGET = "over-budget"
    LIMIT_REACHED = "limit-reached"  # of the session itself: turns, tokens or dollars
    BROKER_FAILED = "broker-failed"  # the key broker, through which it reaches its model
    TIMED_OUT = "timed-out"
    CRASHED = "crashed"
    CANCELLED = "cancelled"


class FailureClass(StrEnum):
    """Handling of the work of a failed session."""

    OUTAGE = "outage"  # tried again with growing pauses, for up to a day
    RETRY = "retry"  # tried again a few times: the cause is unknown, and each try may cost money
    OWNER = "owner"  # kept until the owner has mended the cause
    FINAL = "final"  # a dead letter, which can be replayed


FAILURE_CLASSES: Mapping[Outcome, FailureClass] = MappingProxyType(
    {
        Outcome.RATE_LIMITED: FailureClass.OUTAGE,
        Outcome.MODEL_UNAVAILABLE: FailureClass.OUTAGE,
        Outcome.MCP_UNAVAILABLE: FailureClass.OUTAGE,
        Outcome.BROKER_FAILED: FailureClass.OUTAGE,
        Outcome.TIMED_OUT: FailureClass.RETRY,
        Outcome.CRASHED: FailureClass.RETRY,
        Outcome.NO_ANSWER: FailureClass.RETRY,
        Outcome.NO_CREDENTIAL: FailureClass.OWNER,
        Outcome.NO_CREDIT: FailureClass.OWNER,
        Outcome.NO_MATCH: FailureClass.OWNER,  # no model is set up
        Outcome.REJECTED: FailureClass.FINAL,
        Outcome.DENIED: FailureClass.FINAL,
    }
)
"""Outcomes that are not in this table have an answer of their own: a reflex says that its tool failed, and a
session that was stopped or reached a limit says what it did until then."""


class Access(StrEnum):
    """Resources of a session beyond its butler's tools."""

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
    tools: frozenset[str] | None = None  # tools it may call; None: all that a session may call
    task: str | None = None  # instruction for the message; None: answer it
    conversation: tuple[Turn, ...] = ()  # recent messages of the conversation
    attachments: tuple[Attachment, ...] = ()
    outside: frozenset[str] = frozenset()  # untrusted text that is in its prompt
    reactions: bool | None = None  # the channel of the message shows them; None: not told


@dataclass(frozen=True, slots=True)
class ToolCall:
    tool: str
    arguments: dict[str, Any]
    ok: bool
    result: Any = None
    of_cli: bool = False  # a tool of the CLI itself, known only from its output
    denied: bool = False  # by the session's access level


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens and cost as the broker or the CLI counted them; None where they are not known."""

    input_tokens: int | None = None  # all of them, cached ones included
    output_tokens: int | None = None
    cached_tokens: int | None = None  # input tokens read from a cache
    cost_usd: Decimal | None = None
    written_tokens: int = 0  # input tokens written to a cache


@dataclass(frozen=True, slots=True)
class Exit:
    """End of a session's process, for debugging."""

    code: int | None  # negative: the signal that ended it
    seconds: float
    stderr: str = ""  # the last lines
    why: str = "left"  # it exited by itself; otherwise the reason why it was stopped


@dataclass(frozen=True, slots=True)
class SessionResult:
    outcome: Outcome
    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    usage: Usage = Usage()
    error: str | None = None
    model: str | None = None  # as the CLI named it
    denials: tuple[str, ...] = ()  # calls refused by its access level
    exit: Exit | None = None  # None: no process was started
    retry_after_s: float | None = None  # pause that a rate-limited model asked for
    outside: frozenset[str] = frozenset()  # tools by which it read untrusted text
    changed: bool = False  # a call of it, or of an earlier session of its request, had an effect

    @property
    def ok(self) -> bool:
        return self.outcome is Outcome.OK

    @property
    def failure_class(self) -> FailureClass | None:
        return FAILURE_CLASSES.get(self.outcome)
