"""Gathers what triage needs to know of a message, and lets it decide; or explains a decision of the past."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from butlers.db.database import Database
from butlers.domain.errors import NotFound
from butlers.domain.message import Channel, InboxItem, headers_of
from butlers.domain.registration import Registration
from butlers.domain.route import RouteDecision
from butlers.switchboard import decisions, inbox, registry
from butlers.switchboard import rule_store as rules
from butlers.switchboard.rules import Letter
from butlers.switchboard.triage import Affinity, Step, decide

# A chat is not a topic: of the channels, only mail has threads that are.
THREADED = frozenset({Channel.EMAIL})

# Which butler a message of ours came from, by channel and the platform's id of it.
OriginOf = Callable[[str, str], Awaitable[str | None]]


class Judge:
    def __init__(self, database: Database, reach: timedelta, origin_of: OriginOf) -> None:
        self._database = database
        self._reach = reach  # how old a thread may be that still says whose it is
        self._origin_of = origin_of

    async def decide(self, item: InboxItem, registrations: Sequence[Registration]) -> RouteDecision:
        """Without the owner's rules: what they say was settled at the door."""
        request = item.request
        letter = Letter(request.source_channel, request.source_sender_identity, item.text, {})
        affinity = await self._affinity(
            request.request_id,
            channel=request.source_channel,
            endpoint=request.source_endpoint_identity,
            conversation=request.conversation if request.source_thread_identity else None,
            received_at=request.received_at,
            reply_to=item.reply_to,
        )
        decision = decide(letter, registrations, (), affinity)[-1].decision
        assert decision is not None  # the last step always has one
        return decision

    async def explain(self, request_id: UUID) -> dict[str, Any]:
        """What was decided then, and what each step would say of the same message now. Nothing is done."""
        async with self._database.transaction() as connection:
            row = await inbox.get_message(connection, request_id)
            if row is None:
                raise NotFound(
                    f"there is no message {request_id}", hint="was it sent to this home?"
                )
            legs = await decisions.read_legs(connection, request_id)
            known = await registry.list_registrations(connection)
            current = await rules.read_rules(connection)
        letter = Letter(row["channel"], row["sender"], row["text"], headers_of(row["raw"]))
        affinity = await self._affinity(
            request_id,
            channel=row["channel"],
            endpoint=row["endpoint"],
            conversation=row["conversation"] if row["thread"] else None,
            received_at=row["received_at"],
            reply_to=row["reply_to"],
        )
        return {
            "request_id": str(request_id),
            "state": row["state"],
            "state_reason": row["state_reason"],
            "then": [_told(leg.decision) for leg in legs],
            "now": [_step(step) for step in decide(letter, known, current, affinity)],
        }

    async def _affinity(
        self,
        request_id: UUID,
        *,
        channel: str,
        endpoint: str,
        conversation: str | None,
        received_at: Any,
        reply_to: str | None,
    ) -> Affinity:
        if reply_to is not None:
            async with self._database.transaction() as connection:
                answered = await decisions.targets_of_event(connection, channel, endpoint, reply_to)
            if not answered and (origin := await self._origin_of(channel, reply_to)):
                answered = {origin}
            if answered:
                return Affinity(frozenset(answered), "it answers an earlier message")
        if channel in THREADED and conversation is not None:
            async with self._database.transaction() as connection:
                earlier = await decisions.earlier_targets(
                    connection, conversation, request_id, received_at - self._reach
                )
            return Affinity(frozenset(earlier), "its thread has been there")
        return Affinity()


def _told(decision: RouteDecision) -> dict[str, Any]:
    return {"target": decision.target, "rule": decision.rule, "reason": decision.reason}


def _step(step: Step) -> dict[str, Any]:
    target = step.decision.target if step.decision else None
    return {"step": step.name, "found": step.found, "target": target}
