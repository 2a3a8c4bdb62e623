"""Configuration, budget and result of an evaluation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
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
from butlers.process.runner import TimeLimits


class Disclosure(StrEnum):
    """Way in which tools of an opened section reach the model."""

    WITHIN = "within"  # in the same run, or in a new one if the CLI does not list again
    RESTART = "restart"  # always in a new run


@dataclass(slots=True, frozen=True)
class IsolationConfig:
    """Private home for the session, with skills installed into it."""

    install_skills: bool = True
    api_key: str | None = field(default=None, repr=False)  # None: from this process's environment
    env: Mapping[str, str] = field(
        default_factory=dict, repr=False
    )  # more variables for the session


@dataclass(slots=True, frozen=True)
class ClientConfig:
    """Client options. Without ``isolation``, all skills are sections of the prompt."""

    isolation: IsolationConfig | None = None
    model: str | None = None
    cwd: Path | None = None  # a folder that the session may read
    executable: Path | None = None  # None: the one on PATH
    limits: TimeLimits = field(default_factory=TimeLimits)
    disclosure: Disclosure = Disclosure.WITHIN


@dataclass(slots=True, frozen=True)
class ClaudeAgentSDKClientConfig(ClientConfig):
    pass


@dataclass(slots=True, frozen=True)
class PromptBudget:
    """Limits of one evaluation. Tokens are counted after each run."""

    max_cost_usd: Decimal | None = None
    max_turns: int | None = None
    max_total_tokens: int | None = None


OutputT = TypeVar("OutputT")


@dataclass(frozen=True)
class PromptResponse(Generic[OutputT]):
    """Result of an evaluation. ``output`` is the answer as the template's output type."""

    prompt_name: str
    text: str
    output: OutputT | None = None
    usage: Usage = field(default_factory=Usage)
    tool_calls: tuple[ToolCall, ...] = ()
    denials: tuple[str, ...] = ()  # denied tool calls
    runs: int = 1  # number of CLI runs


def failure(result: SessionResult) -> ButlersError:
    """Return the error for a failed session."""
    why = result.error or "no reason given"
    match result.outcome:
        case Outcome.OVER_BUDGET:
            return OverBudget(why, hint="raise the budget or reduce the task")
        case Outcome.RATE_LIMITED:
            limited = RateLimited(why)
            limited.after_s = result.retry_after_s
            return limited
        case Outcome.TIMED_OUT:
            return DeadlineExceeded(why)
        case Outcome.NO_CREDENTIAL:
            return SessionFailed(why, hint="set the model's API key in the environment")
    return PromptEvaluationError(why)


def total_usage(runs: Iterable[Usage]) -> Usage:
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
    """Return the total cost, or None if one is unknown."""
    costs = [one.cost_usd for one in runs]
    known = [one for one in costs if one is not None]
    return sum(known, Decimal(0)) if known and len(known) == len(costs) else None


@dataclass(slots=True)
class SpendingLimit:
    budget: PromptBudget
    _results: list[SessionResult] = field(default_factory=list)

    @property
    def results(self) -> Sequence[SessionResult]:
        return self._results

    def add(self, result: SessionResult) -> None:
        """Add a run's usage; raise OverBudget if it exceeds the token limit."""
        self._results.append(result)
        used, allowed = (
            total_usage(one.usage for one in self._results),
            self.budget.max_total_tokens,
        )
        tokens = (used.input_tokens or 0) + (used.output_tokens or 0)
        if allowed is not None and tokens > allowed:
            raise OverBudget(
                f"{tokens} tokens used, {allowed} allowed",
                hint="raise the budget or reduce the task",
            )

    def require_known(self) -> None:
        """Raise OverBudget if the last run, cut off, did not report its usage."""
        used = self._results[-1].usage
        unknown = (self.budget.max_cost_usd is not None and used.cost_usd is None) or (
            self.budget.max_total_tokens is not None and used.input_tokens is None
        )
        if unknown:
            raise OverBudget(
                "a new run is needed, but the usage so far is unknown",
                hint="use Disclosure.WITHIN, or limit turns and set a deadline",
            )

    def left(self) -> PromptBudget:
        """Return the remaining budget. Tool calls count as turns: they are at least as many."""
        cost, turns = self.budget.max_cost_usd, self.budget.max_turns
        spent = sum((one.usage.cost_usd or Decimal(0) for one in self._results), Decimal(0))
        called = sum(len(one.tool_calls) for one in self._results)
        return replace(
            self.budget,
            max_cost_usd=None if cost is None else max(cost - spent, Decimal(0)),
            max_turns=None if turns is None else max(turns - called, 1),
        )
