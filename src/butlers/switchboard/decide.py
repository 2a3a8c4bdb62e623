"""Gathers what triage needs to know of a message, and lets it decide; or explains a decision of the past."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import structlog

from butlers.channels.registry import ChannelSet
from butlers.db.database import Database
from butlers.domain.errors import ButlersError, NotFound
from butlers.domain.message import InboxItem, RouteDecision, headers_of
from butlers.domain.queues import MESSENGER
from butlers.domain.registration import Registration
from butlers.switchboard import decisions, inbox, registry
from butlers.switchboard import rule_store as rules
from butlers.switchboard.rules import Letter
from butlers.switchboard.triage import Affinity, Step, decide
from butlers.wire.peers import Peers

log = structlog.get_logger()


class Triage:
    def __init__(
        self, database: Database, peers: Peers, channels: ChannelSet, reach: timedelta
    ) -> None:
        self._database = database
        self._peers = peers
        self._channels = channels
        self._reach = reach  # age of the oldest thread that still decides

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
        if conversation is not None and self._channels.threads_are_topics(channel):
            async with self._database.transaction() as connection:
                earlier = await decisions.earlier_targets(
                    connection, conversation, request_id, received_at - self._reach
                )
            return Affinity(frozenset(earlier), "its thread has been there")
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


def _told(decision: RouteDecision) -> dict[str, Any]:
    return {"target": decision.target, "rule": decision.rule, "reason": decision.reason}


def _step(step: Step) -> dict[str, Any]:
    target = step.decision.target if step.decision else None
    return {"step": step.name, "found": step.found, "target": target}
