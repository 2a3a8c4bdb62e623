"""Triage: which butler a message is for, decided by ordinary code, with the reason kept."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import structlog

from butlers.domain.errors import InvalidArguments
from butlers.domain.registration import Registration
from butlers.domain.route import FALLBACK_RULE, RouteDecision
from butlers.skills.reflexes import CompiledTrigger, compile_trigger

log = structlog.get_logger()

FALLBACK = "general"


def decide(text: str, registrations: Iterable[Registration]) -> RouteDecision:
    """The first butler, by name, that advertises a trigger for this text; else the general one."""
    for registration in registrations:
        if registration.infrastructure:
            continue
        for pattern in registration.triggers:
            trigger = _compiled(pattern)
            if trigger is not None and trigger.matches(text):
                return RouteDecision(registration.name, "trigger", f"matches {pattern!r}")
    return RouteDecision(FALLBACK, FALLBACK_RULE, "no butler advertises a trigger for it")


@lru_cache(maxsize=4096)
def _compiled(pattern: str) -> CompiledTrigger | None:
    """A pattern that came over the wire and does not compile is left out, loudly, once."""
    try:
        return compile_trigger(pattern)
    except InvalidArguments as error:
        log.warning("advertised trigger ignored", pattern=pattern, error=str(error))
        return None
