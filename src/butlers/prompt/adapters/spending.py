"""What the runs of one evaluation have used, and what is left of what was allowed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal

from butlers.domain.errors import OverBudget
from butlers.domain.session import SessionResult
from butlers.prompt.adapters.config import Budget
from butlers.prompt.adapters.response import total


@dataclass(slots=True)
class Spending:
    budget: Budget
    _results: list[SessionResult] = field(default_factory=list)

    @property
    def results(self) -> Sequence[SessionResult]:
        return self._results

    def add(self, result: SessionResult) -> None:
        """OverBudget once more tokens were used than allowed."""
        self._results.append(result)
        used, allowed = total(one.usage for one in self._results), self.budget.max_total_tokens
        tokens = (used.input_tokens or 0) + (used.output_tokens or 0)
        if allowed is not None and tokens > allowed:
            raise OverBudget(
                f"{tokens} tokens were used, and {allowed} were allowed",
                hint="allow it more, or ask for less",
            )

    def require_known(self) -> None:
        """A run that was cut off may not have said what it used: then nobody can say what is left."""
        used = self._results[-1].usage
        unknown = (self.budget.max_cost_usd is not None and used.cost_usd is None) or (
            self.budget.max_total_tokens is not None and used.input_tokens is None
        )
        if unknown:
            raise OverBudget(
                "it has to begin anew, and what was used so far is not known",
                hint="leave disclosure as it is, or give it a number of turns and a deadline",
            )

    def left(self) -> Budget:
        """A turn that was cut off counts with each of its calls, which are no fewer than its turns."""
        cost, turns = self.budget.max_cost_usd, self.budget.max_turns
        spent = sum((one.usage.cost_usd or Decimal(0) for one in self._results), Decimal(0))
        called = sum(len(one.tool_calls) for one in self._results)
        return replace(
            self.budget,
            max_cost_usd=None if cost is None else max(cost - spent, Decimal(0)),
            max_turns=None if turns is None else max(turns - called, 1),
        )
