"""Triage: decide which butler answers a message, as far as that is possible without a model.

The first step that decides wins: the owner's rules, reflexes, thread affinity, advertised triggers. If no
step decides, a classification session is asked (``classification``), and without an answer the message
goes to the general butler. Every step says what it found, so that a decision can be explained later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import Any
from uuid import UUID

import structlog

from butlers.channels.registry import ChannelSet
from butlers.db.database import Database
from butlers.domain.caller import OWNER_ONLY
from butlers.domain.errors import ButlersError, InvalidArguments, NotFound
from butlers.domain.message import BY_RULE, FALLBACK_RULE, InboxItem, RouteDecision, headers_of
from butlers.domain.queues import MESSENGER
from butlers.domain.registration import Registration
from butlers.domain.triage import RuleAction, TriageRule
from butlers.skills.reflexes import CompiledTrigger, compile_trigger
from butlers.switchboard import decisions, inbox, registry
from butlers.switchboard.registry import candidates
from butlers.switchboard.rules import RuleInput, contains, first_match, read_rules
from butlers.tools.context import CallContext
from butlers.tools.declaration import Effect, tool
from butlers.wire.client import Peers

log = structlog.get_logger()

FALLBACK = "general"
BY_REFLEX = "reflex"


@dataclass(frozen=True, slots=True)
class Affinity:
    """Butlers that earlier messages of the thread, or the message replied to, went to."""

    targets: frozenset[str] = frozenset()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class TriageStep:
    """One step of triage: what it found, and the decision if it made one."""

    name: str
    found: str
    decision: RouteDecision | None = None


def triage_steps(
    message: RuleInput,
    registrations: Sequence[Registration],
    rules: Sequence[TriageRule],
    affinity: Affinity,
) -> list[TriageStep]:
    """Return the steps up to the first that decides. The last one, the fallback, always does."""
    butlers = candidates(registrations)
    steps: list[TriageStep] = []
    for step in (
        _by_rule(message, rules, butlers),
        _by_reflex(message, butlers),
        _by_affinity(affinity, butlers),
        _by_trigger(message, butlers),
        _fallback(),
    ):
        steps.append(step)
        if step.decision is not None:
            break
    return steps


def _by_rule(
    message: RuleInput, rules: Sequence[TriageRule], butlers: Sequence[Registration]
) -> TriageStep:
    rule = first_match(rules, message)
    if rule is None:
        return TriageStep("rules", "no rule matches")
    decision = None
    if rule.action is RuleAction.ROUTE and rule.target:
        if rule.target not in {butler.name for butler in butlers}:
            return TriageStep("rules", f"{rule}, but there is no butler {rule.target}")
        decision = RouteDecision(rule.target, BY_RULE, str(rule))
    return TriageStep("rules", str(rule), decision)


def takes(butlers: Sequence[Registration], text: str) -> RouteDecision | None:
    """Return the route to the first butler with a reflex for the text, or None.

    The general butler's patterns are broad, so it comes last.
    """
    for butler in sorted(butlers, key=lambda one: one.name == FALLBACK):
        for pattern in butler.reflexes:
            trigger = _compiled(pattern)
            if trigger is not None and trigger.matches(text):
                return RouteDecision(butler.name, BY_REFLEX, f"matches {pattern!r}")
    return None


def _by_reflex(message: RuleInput, butlers: Sequence[Registration]) -> TriageStep:
    decision = takes(butlers, message.text)
    if decision is None:
        return TriageStep("reflexes", "no butler has a reflex for it")
    return TriageStep("reflexes", decision.reason, decision)


def _by_affinity(affinity: Affinity, butlers: Sequence[Registration]) -> TriageStep:
    known = sorted(affinity.targets & {butler.name for butler in butlers})
    if len(known) == 1:
        decision = RouteDecision(known[0], "affinity", affinity.reason)
        return TriageStep("affinity", affinity.reason, decision)
    if known:
        return TriageStep("affinity", f"several butlers: {', '.join(known)}")
    return TriageStep("affinity", "neither in a thread nor a reply")


def _by_trigger(message: RuleInput, butlers: Sequence[Registration]) -> TriageStep:
    for butler in butlers:
        for pattern in butler.triggers:
            if contains(pattern, message.text):
                found = f"contains {pattern!r}"
                return TriageStep("triggers", found, RouteDecision(butler.name, "trigger", found))
    return TriageStep("triggers", "no butler advertises a trigger for it")


def _fallback() -> TriageStep:
    reason = "no rule, reflex, thread or trigger matches"
    return TriageStep(FALLBACK_RULE, reason, RouteDecision(FALLBACK, FALLBACK_RULE, reason))


@lru_cache(maxsize=4096)
def _compiled(pattern: str) -> CompiledTrigger | None:
    """Compile an advertised pattern, or log that it is invalid and return None."""
    try:
        return compile_trigger(pattern)
    except InvalidArguments as error:
        log.warning("advertised reflex ignored", pattern=pattern, error=str(error))
        return None


class Triage:
    def __init__(
        self, database: Database, peers: Peers, channels: ChannelSet, reach: timedelta
    ) -> None:
        self._database = database
        self._peers = peers
        self._channels = channels
        self._reach = reach  # age of the oldest thread that still decides

    async def decide(self, item: InboxItem, registrations: Sequence[Registration]) -> RouteDecision:
        """Decide without the owner's rules, which were applied when the message came in."""
        message = RuleInput.of(item.request, item.text, {})
        steps = triage_steps(message, registrations, (), await self._affinity(item))
        decision = steps[-1].decision
        assert decision is not None  # the last step always has one
        return decision

    async def explain(self, request_id: UUID) -> dict[str, Any]:
        """Return what was decided, and what each step would decide for the same message now."""
        async with self._database.transaction() as connection:
            row = await inbox.get_message(connection, request_id)
            if row is None:
                raise NotFound(
                    f"there is no message {request_id}", hint="was it sent to this fleet?"
                )
            decided = await decisions.read_decisions(connection, request_id)
            known = await registry.list_registrations(connection)
            current = await read_rules(connection)
        item = inbox.item_from_row(row)
        message = RuleInput.of(item.request, item.text, headers_of(row["raw"]))
        steps = triage_steps(message, known, current, await self._affinity(item))
        return {
            "request_id": str(request_id),
            "state": row["state"],
            "state_reason": row["state_reason"],
            "then": [_shown(one.decision) for one in decided],
            "now": [_shown_step(step) for step in steps],
        }

    async def _affinity(self, item: InboxItem) -> Affinity:
        request, channel = item.request, item.request.source_channel
        if item.reply_to is not None:
            async with self._database.transaction() as connection:
                answered = await decisions.targets_of_event(
                    connection, channel, request.source_endpoint_identity, item.reply_to
                )
            if not answered and (origin := await self._origin_of(channel, item.reply_to)):
                answered = {origin}
            if answered:
                return Affinity(frozenset(answered), "it replies to an earlier message")
        if request.source_thread_identity and self._channels.threads_are_topics(channel):
            since = request.received_at - self._reach
            async with self._database.transaction() as connection:
                earlier = await decisions.earlier_targets(
                    connection, request.conversation, request.request_id, since
                )
            return Affinity(frozenset(earlier), "earlier messages of the thread went there")
        return Affinity()

    async def _origin_of(self, channel: str, message_id: str) -> str | None:
        """Ask the Messenger which butler sent a message; None if it is unknown or does not answer."""
        async with self._database.transaction() as connection:
            messenger = await registry.find_registration(connection, MESSENGER)
        if messenger is None:
            return None
        arguments = {"channel": channel, "provider_message_id": message_id}
        try:
            answer = await self._peers.call(MESSENGER, messenger.url, "delivery_origin", arguments)
        except ButlersError as error:
            log.warning("origin of the replied-to message is unknown", error=str(error))
            return None
        origin: str | None = answer["origin"]
        return origin


def _shown(decision: RouteDecision) -> dict[str, Any]:
    return {"target": decision.target, "rule": decision.rule, "reason": decision.reason}


def _shown_step(step: TriageStep) -> dict[str, Any]:
    target = step.decision.target if step.decision else None
    return {"step": step.name, "found": step.found, "target": target}


@tool(callers=OWNER_ONLY, effect=Effect.LOOK)
async def triage_explain(ctx: CallContext, request_id: UUID) -> dict[str, Any]:
    """Explain a decision: what was decided then, and what each step of triage would decide now."""
    return await ctx.service(Triage).explain(request_id)


TOOLS = (triage_explain,)
