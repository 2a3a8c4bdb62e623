"""The last event of a session: its answer or its failure, and what it used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

from butlers.domain.session import Outcome, Usage
from butlers.runtimes.failures import Failure, asked_pause, brief, of_model
from butlers.runtimes.shapes import count, mapping, mappings, money, text, texts

WHO = "Claude Code"
LIMITS = ("error_max_budget_usd", "error_max_turns")  # those that the owner's own arguments set
# Where no request was answered: a session without any key asks nobody.
NO_CREDENTIAL = ("authentication_failed", "oauth_org_not_allowed")
RATE_LIMITED = ("rate_limit", "overloaded")
UNKNOWN_PRICE = "unknown"


class Ending:
    def __init__(self, event: Mapping[str, Any]) -> None:
        self._event = event

    @property
    def is_error(self) -> bool:
        """The subtype says ``success`` also when the model's API failed."""
        return self._event.get("is_error") is not False or self._event.get("subtype") != "success"

    @property
    def text(self) -> str | None:
        return None if self.is_error else text(self._event.get("result"))

    @property
    def denials(self) -> dict[str, str]:
        """By the id of the call."""
        found = {}
        for denial in mappings(self._event.get("permission_denials")):
            key, name = text(denial.get("tool_use_id")), text(denial.get("tool_name"))
            if key and name:
                found[key] = name
        return found

    def failure(self, trouble: str | None, retry_ms: int | None = None) -> Failure:
        """``trouble`` is the kind of the last error, as the CLI names it."""
        reason = self._reason()
        outcome = self._outcome(trouble, reason)
        if outcome is not Outcome.RATE_LIMITED:
            return Failure(outcome, reason)
        told = asked_pause(reason) or (retry_ms or 0) / 1000
        return Failure(outcome, reason, told or None)

    def _outcome(self, trouble: str | None, reason: str) -> Outcome:
        if self._event.get("subtype") in LIMITS:
            return Outcome.OVER_BUDGET
        status = count(self._event.get("api_error_status"))
        told = of_model(WHO, f"status {status}: {reason}" if status else reason).outcome
        if told is Outcome.CRASHED and trouble in NO_CREDENTIAL:
            return Outcome.NO_CREDENTIAL
        if told is Outcome.CRASHED and trouble in RATE_LIMITED:
            return Outcome.RATE_LIMITED
        return told

    def _reason(self) -> str:
        said = text(self._event.get("result")) or "; ".join(texts(self._event.get("errors")))
        why = said or text(self._event.get("subtype")) or "it did not say why"
        return f"{WHO} failed: {brief(why)}"

    @property
    def usage(self) -> Usage:
        """By model, because the plain counts are all zero when a limit ended the session."""
        models = list(mapping(self._event.get("modelUsage")).values())
        if not models:
            usage = plain_usage(mapping(self._event.get("usage")))
            return replace(usage, cost_usd=self._cost([]))
        cached = _sum(models, "cacheReadInputTokens")
        written = _sum(models, "cacheCreationInputTokens")
        return Usage(
            input_tokens=_total(_sum(models, "inputTokens"), cached, written),
            output_tokens=_sum(models, "outputTokens"),
            cached_tokens=cached,
            cost_usd=self._cost(models),
            written_tokens=written or 0,
        )

    def _cost(self, models: list[Any]) -> Decimal | None:
        """None for a model whose price the CLI does not know: it then takes the dearest one's."""
        if any(mapping(model).get("costBasis") == UNKNOWN_PRICE for model in models):
            return None
        return money(self._event.get("total_cost_usd"))


def plain_usage(usage: Mapping[str, Any]) -> Usage:
    cached = count(usage.get("cache_read_input_tokens"))
    written = count(usage.get("cache_creation_input_tokens"))
    return Usage(
        input_tokens=_total(count(usage.get("input_tokens")), cached, written),
        output_tokens=count(usage.get("output_tokens")),
        cached_tokens=cached,
        written_tokens=written or 0,
    )


def total_usage(turns: Iterable[Usage]) -> Usage:
    """Of a session that did not come to its end; a turn's output is told before it is whole."""
    every = list(turns)
    return Usage(
        input_tokens=_total(*(turn.input_tokens for turn in every)),
        output_tokens=_total(*(turn.output_tokens for turn in every)),
        cached_tokens=_total(*(turn.cached_tokens for turn in every)),
        written_tokens=sum(turn.written_tokens for turn in every),
    )


def _sum(models: list[Any], name: str) -> int | None:
    return _total(*(count(mapping(model).get(name)) for model in models))


def _total(*counts: int | None) -> int | None:
    known = [one for one in counts if one is not None]
    return sum(known) if known else None
