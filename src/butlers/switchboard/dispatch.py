"""The Switchboard's two roads: messages in to the butlers that answer, deliveries out to the Messenger.

Each handler works on a leased item. The other side stores under the request's or delivery's own key before
it acknowledges, so asking it twice is the same as asking once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any
from uuid import UUID

from butlers.db.database import Connection, Database
from butlers.domain.clock import Clock, uuid7
from butlers.domain.delivery import DeliveryRequest
from butlers.domain.errors import (
    EarlierMessageWaits,
    PeerUnavailable,
    PreviousPartFailed,
    PreviousPartOpen,
)
from butlers.domain.faults import kill_point, shortened
from butlers.domain.message import (
    BY_RULE,
    FALLBACK_RULE,
    InboxItem,
    RouteDecision,
    RouteRequest,
    Turn,
    joined,
)
from butlers.domain.queues import MESSENGER, SWITCHBOARD
from butlers.domain.registration import Registration
from butlers.queue import leased_queue as queue
from butlers.queue import notice_log
from butlers.queue.leased_queue import Lease
from butlers.queue.outbox import queue_delivery, queue_reply
from butlers.queue.pause import raise_if_paused
from butlers.queue.worker import Finish
from butlers.switchboard import conversation, decisions, registry
from butlers.switchboard.classification import Classifier
from butlers.switchboard.decide import Triage
from butlers.switchboard.decisions import Leg
from butlers.wire.codec import decode, encode
from butlers.wire.peers import Peers
from butlers.wire.telemetry import route_span

PATIENCE = timedelta(minutes=1)
TOLD_AT_ONCE = 100  # of those behind a message that waits; the next ones with its next wait
WAITING = "Who has to answer this is away. Your message is kept, and answered when they are back."
NO_WORDS = "(There is no text, only what is attached.)"


@dataclass(frozen=True, slots=True)
class History:
    """How much of the recent conversation travels with a message."""

    reach: timedelta
    messages: int


class Dispatch:
    def __init__(
        self,
        database: Database,
        peers: Peers,
        clock: Clock,
        triage: Triage,
        classifier: Classifier,
        history: History,
    ) -> None:
        self._database = database
        self._peers = peers
        self._clock = clock
        self._triage = triage
        self._classifier = classifier
        self._history = history

    async def route_message(self, lease: Lease) -> Any:
        """Decide where a message goes, once, and hand it over; one for several goes on in its parts."""
        item = decode(InboxItem, lease.payload)
        turns = await self._recent(item)
        legs = await self._decide(item, turns)
        kill_point("inbox.decided")
        if len(legs) > 1 and item.part is None:
            return _split(lease, item, legs)
        index = next(n for n, leg in enumerate(legs) if item.part in (None, leg.decision.target))
        target = legs[index].decision.target
        if item.part is None:
            await self._stay_in_order(lease, item, target)
        try:
            await self._send(item, legs, index, turns)
        except PeerUnavailable:
            await self._tell_of_waiting(lease, item)
            raise
        return {"targets": [target]}

    async def _stay_in_order(self, lease: Lease, item: InboxItem, target: str) -> None:
        """From here on a message stands behind those of its conversation that go the same way only: it
        does not wait for a butler that is away and has nothing to do with it."""
        async with self._database.transaction() as connection:
            behind = await queue.change_lane(connection, lease, _lane(item, target))
        if behind:
            raise EarlierMessageWaits(f"an earlier one for {target} waits")

    async def forward_delivery(self, lease: Lease) -> Any:
        """Hand a delivery to the Messenger, the only way out."""
        messenger = await self._find(MESSENGER)
        delivery = decode(DeliveryRequest, lease.payload)
        return await self._peers.call(
            messenger.name, messenger.url, "deliver", {"delivery": encode(delivery)}
        )

    async def _send(
        self, item: InboxItem, legs: Sequence[Leg], index: int, turns: tuple[Turn, ...]
    ) -> None:
        decision, request = legs[index].decision, item.request
        if legs[index].routed_at is not None:
            return
        if decision.after_previous and index:
            _check_previous(legs[index - 1])
        route = RouteRequest(
            request,
            decision.target,
            decision.part or item.text or NO_WORDS,
            decision,
            turns,
            item.attachments,
            report=len(legs) > 1,
        )
        with route_span(request.request_id, decision.target, decision.rule):
            target = await self._find(decision.target)
            arguments = {"route": encode(route)}
            await self._peers.call(target.name, target.url, "route.execute", arguments)
        kill_point("inbox.routed")
        async with self._database.transaction() as connection:
            await decisions.mark_routed(
                connection, request.request_id, decision.target, self._clock.now()
            )

    async def _tell_of_waiting(self, lease: Lease, item: InboxItem) -> None:
        """Once for each message, when it takes longer than a person would think: also for those behind it,
        whose own turn may come only when this one is over."""
        if self._clock.now() - item.request.received_at <= shortened(PATIENCE):
            return
        today = self._clock.now().date()
        async with self._database.transaction() as connection:
            behind = await notice_log.unnotified_behind(
                connection, lease, notice_log.AWAY, today, shortened(PATIENCE), TOLD_AT_ONCE
            )
            waiting = [item.request, *(decode(InboxItem, one).request for one in behind)]
            untold = await notice_log.record_notices(
                connection,
                notice_log.AWAY,
                [str(request.request_id) for request in waiting],
                today,
            )
            for request in waiting:
                if str(request.request_id) in untold:
                    # The same words to the same message are one delivery, on another day too.
                    await queue_reply(connection, SWITCHBOARD, request, WAITING)

    async def _recent(self, item: InboxItem) -> tuple[Turn, ...]:
        request = item.request
        async with self._database.transaction() as connection:
            return await conversation.recent_turns(
                connection,
                request.conversation,
                request.request_id,
                request.received_at - self._history.reach,
                request.received_at,
                self._history.messages,
            )

    async def _decide(self, item: InboxItem, turns: tuple[Turn, ...]) -> list[Leg]:
        request_id = item.request.request_id
        async with self._database.transaction() as connection:
            known = await decisions.read_legs(connection, request_id)
            registrations = await registry.list_registrations(connection)
            if known and not _leads_nowhere(known, registrations):
                return known
            for leg in known:
                await self._set_aside(connection, request_id, leg.decision)
        decision = await self._triage.decide(item, registrations)
        if decision.rule == FALLBACK_RULE:
            async with self._database.transaction() as connection:
                await raise_if_paused(connection, self._clock.now())
            classified = await self._classifier.classify(item, registrations, turns)
            if classified:
                return classified
        async with self._database.transaction() as connection:
            return await decisions.settle(connection, request_id, [decision])

    async def _set_aside(
        self, connection: Connection, request_id: UUID, decision: RouteDecision
    ) -> None:
        """A rule that leads nowhere: the message is decided without it, and the owner told, once a day."""
        why = f"the rule ({decision.reason}) names {decision.target}, whom nobody knows any more"
        await decisions.reopen_message(connection, request_id, why)
        today = self._clock.now().date()
        if not await notice_log.record_notice(
            connection, notice_log.RULE_LEADS_NOWHERE, decision.reason, today
        ):
            return
        message = (
            f"Your rule “{decision.reason}” leads nowhere: there is no butler {decision.target} any"
            " more. Messages go where they would go without it. `butlers rules list` shows it,"
            " `butlers rules remove ID` ends it."
        )
        notice = DeliveryRequest.to_owner(uuid7(), SWITCHBOARD, message)
        await queue_delivery(connection, notice)

    async def _find(self, name: str) -> Registration:
        async with self._database.transaction() as connection:
            found = await registry.find_registration(connection, name)
        if found is None:
            raise PeerUnavailable(f"{name} has not registered with the Switchboard")
        return found


def _leads_nowhere(legs: Sequence[Leg], registrations: Sequence[Registration]) -> bool:
    """Whether a rule of the owner's names a butler that was forgotten. One that is only away is known."""
    return len(legs) == 1 and (
        legs[0].decision.rule == BY_RULE
        and legs[0].routed_at is None
        and legs[0].decision.target not in {one.name for one in registrations}
    )


def _lane(item: InboxItem, target: str) -> str:
    return joined(item.request.conversation, target)


def _split(lease: Lease, item: InboxItem, legs: Sequence[Leg]) -> Finish:
    """Each part goes its own way, in the place that the whole had: before whatever was said later."""

    async def write(connection: Connection) -> None:
        for number, leg in enumerate(legs, start=1):
            target = leg.decision.target
            await queue.enqueue(
                connection,
                lease.queue,
                joined(lease.key, target),
                encode(replace(item, part=target)),
                priority=lease.priority,
                lane=_lane(item, target),
                item_id=UUID(int=lease.item_id.int + number),
            )
        kill_point("inbox.split")

    return Finish({"targets": [leg.decision.target for leg in legs]}, write)


def _check_previous(before: Leg) -> None:
    """A part that depends on the one before it waits for that one's end, and goes nowhere if it failed."""
    if before.ended_well is None:
        raise PreviousPartOpen(f"{before.decision.target} is still busy with the part before it")
    if not before.ended_well:
        raise PreviousPartFailed(f"{before.decision.target} failed with the part before it")
