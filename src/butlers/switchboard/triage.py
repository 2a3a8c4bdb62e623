"""Where a message goes, as far as that can be said without a model: the first step that knows decides.

    the owner's rules, reflexes, thread affinity, advertised triggers; then a classification session is
    asked (``ingest.classify``), and where that has no answer, the general butler takes it.

Every step says what it found, so that a decision can be explained, and replayed later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import structlog

from butlers.domain.errors import InvalidArguments
from butlers.domain.registration import Registration
from butlers.domain.route import BY_RULE, CONTRACT, FALLBACK_RULE, RouteDecision
from butlers.domain.rule import RuleAction, TriageRule
from butlers.skills.reflexes import CompiledTrigger, compile_trigger
from butlers.switchboard.rules import Letter, contains, first_match

log = structlog.get_logger()

FALLBACK = "general"


@dataclass(frozen=True, slots=True)
class Affinity:
    """Whom earlier messages of the same thread, or the message that this one answers, went to."""

    targets: frozenset[str] = frozenset()
    why: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """What one step of triage found."""

    name: str
    found: str
    decision: RouteDecision | None = None


def candidates(registrations: Sequence[Registration]) -> list[Registration]:
    """Those that may be given what people say, and understand how we say it."""
    return [
        one
        for one in registrations
        if not one.infrastructure and one.contract_min <= CONTRACT <= one.contract_max
    ]


def decide(
    letter: Letter,
    registrations: Sequence[Registration],
    rules: Sequence[TriageRule],
    affinity: Affinity,
) -> list[Step]:
    """The steps up to the first that decides; the last one always does."""
    butlers = candidates(registrations)
    steps: list[Step] = []
    for step in (
        _by_rule(letter, rules, butlers),
        _by_reflex(letter, butlers),
        _by_affinity(affinity, butlers),
        _by_trigger(letter, butlers),
        _fallback(),
    ):
        steps.append(step)
        if step.decision is not None:
            break
    return steps


def _by_rule(letter: Letter, rules: Sequence[TriageRule], butlers: Sequence[Registration]) -> Step:
    rule = first_match(rules, letter)
    if rule is None:
        return Step("rules", "none of the owner's rules matches")
    decision = None
    if rule.action is RuleAction.ROUTE and rule.target:
        if rule.target not in {butler.name for butler in butlers}:
            return Step("rules", f"{rule}, but nobody knows {rule.target} any more")
        decision = RouteDecision(rule.target, BY_RULE, str(rule))
    return Step("rules", str(rule), decision)


def _by_reflex(letter: Letter, butlers: Sequence[Registration]) -> Step:
    for butler in butlers:
        for pattern in butler.reflexes:
            trigger = _compiled(pattern)
            if trigger is not None and trigger.matches(letter.text):
                found = f"matches {pattern!r}"
                return Step("reflexes", found, RouteDecision(butler.name, "reflex", found))
    return Step("reflexes", "nobody has a reflex for it")


def _by_affinity(affinity: Affinity, butlers: Sequence[Registration]) -> Step:
    known = sorted(affinity.targets & {butler.name for butler in butlers})
    if len(known) == 1:
        decision = RouteDecision(known[0], "affinity", affinity.why)
        return Step("affinity", affinity.why, decision)
    if known:
        return Step("affinity", f"it has been with several: {', '.join(known)}")
    return Step("affinity", "no thread, and no answer to anything")


def _by_trigger(letter: Letter, butlers: Sequence[Registration]) -> Step:
    for butler in butlers:
        for pattern in butler.triggers:
            if contains(pattern, letter.text):
                found = f"contains {pattern!r}"
                return Step("triggers", found, RouteDecision(butler.name, "trigger", found))
    return Step("triggers", "no butler advertises a trigger for it")


def _fallback() -> Step:
    reason = "no rule, reflex, thread or trigger knows it"
    return Step(FALLBACK_RULE, reason, RouteDecision(FALLBACK, FALLBACK_RULE, reason))


@lru_cache(maxsize=4096)
def _compiled(pattern: str) -> CompiledTrigger | None:
    """A pattern that came over the wire and does not compile is left out, loudly, once."""
    try:
        return compile_trigger(pattern)
    except InvalidArguments as error:
        log.warning("advertised reflex ignored", pattern=pattern, error=str(error))
        return None
