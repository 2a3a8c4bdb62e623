"""What came of an evaluation."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Generic, TypeVar

from butlers.domain.errors import (
    ButlersError,
    DeadlineExceeded,
    OverBudget,
    PromptEvaluationError,
    RateLimited,
    SessionFailed,
)
from butlers.domain.session import Outcome, SessionResult, ToolCall, Usage

OutputT = TypeVar("OutputT")


@dataclass(frozen=True)
class PromptResponse(Generic[OutputT]):
    """``output`` is the answer as the dataclass that the template asks for."""

    prompt_name: str
    text: str
    output: OutputT | None = None
    usage: Usage = field(default_factory=Usage)
    tool_calls: tuple[ToolCall, ...] = ()
    denials: tuple[str, ...] = ()  # what it tried and was refused
    runs: int = 1  # of the CLI


def failure(result: SessionResult) -> ButlersError:
    """Why there is no answer, as the error that says what may be done about it."""
    why = result.error or "it did not say why"
    match result.outcome:
        case Outcome.OVER_BUDGET:
            return OverBudget(why, hint="allow it more, or ask for less")
        case Outcome.RATE_LIMITED:
            limited = RateLimited(why)
            limited.after_s = result.retry_after_s
            return limited
        case Outcome.TIMED_OUT:
            return DeadlineExceeded(why)
        case Outcome.NO_CREDENTIAL:
            return SessionFailed(why, hint="set the key of its model in the environment")
    return PromptEvaluationError(why)


def total(runs: Iterable[Usage]) -> Usage:
    every = list(runs)
    return Usage(
        input_tokens=_sum(one.input_tokens for one in every),
        output_tokens=_sum(one.output_tokens for one in every),
        cached_tokens=_sum(one.cached_tokens for one in every),
        cost_usd=_cost(every),
        written_tokens=sum(one.written_tokens for one in every),
    )


def _sum(counts: Iterable[int | None]) -> int | None:
    known = [one for one in counts if one is not None]
    return sum(known) if known else None


def _cost(runs: list[Usage]) -> Decimal | None:
    """Unknown as soon as one of them is."""
    costs = [one.cost_usd for one in runs]
    known = [one for one in costs if one is not None]
    return sum(known, Decimal(0)) if known and len(known) == len(costs) else None
