"""Dispatch: route messages to the butlers that answer, and forward deliveries to the Messenger.

The receiver stores each item under the request's or delivery's own key before it acknowledges, so that
sending it twice has the same effect as sending it once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any
from uuid import UUID

from butlers.channels.base import RequestProgress
from butlers.channels.registry import ChannelSet
from butlers.db.database import Connection, Database
from butlers.domain.caller import PEERS
from butlers.domain.clock import Clock, uuid7
from butlers.domain.delivery import DeliveryRequest, Intent
from butlers.domain.errors import (
    EarlierMessageWaits,
    NotAllowed,
    NotFound,
    PeerUnavailable,
    Postponed,
    PreviousPartFailed,
    PreviousPartOpen,
)
from butlers.domain.faults import kill_point, shortened
from butlers.domain.links import links_from
from butlers.domain.message import (
    BY_RULE,
    FALLBACK_RULE,
    InboxItem,
    RouteDecision,
    RouteRequest,
    Turn,
    joined,
)
from butlers.domain.queues import DELIVERIES, INBOX, MESSENGER, SWITCHBOARD
from butlers.domain.registration import Registration
from butlers.domain.session import Outcome
from butlers.queue import leased_queue as queue
from butlers.queue import notice_log
from butlers.queue.leased_queue import Lease
from butlers.queue.outbox import queue_delivery, queue_reply
from butlers.queue.pause import raise_if_paused
from butlers.queue.worker import FinishWith
from butlers.runtimes.failures import STOPPED
from butlers.switchboard import conversation, decisions, inbox, registry
from butlers.switchboard.approval_answers import ApprovalAnswers
from butlers.switchboard.classification import ClassificationStopped, Classifier
from butlers.switchboard.decisions import StoredDecision
from butlers.switchboard.follow_ups import FollowUps
from butlers.switchboard.guidance import Guidance
from butlers.switchboard.ingest import InboundService
from butlers.switchboard.own_answers import OwnAnswers
from butlers.switchboard.triage import BY_REFLEX, Triage
from butlers.switchboard.undo import UndoFinder
from butlers.tools.context import CallContext
from butlers.tools.declaration import tool
from butlers.wire.client import Peers
from butlers.wire.codec import decode, encode
from butlers.wire.telemetry import route_span

NOTICE_AFTER = timedelta(minutes=1)
NOTICES_AT_ONCE = 100  # to senders of messages behind one that waits; the rest at its next attempt
WAITING = "The butler for this is not running. Your message is stored and answered when it is back."
CLASSIFYING = "?"  # lane of the messages that wait for a classification session
CLASSIFY_LATER = timedelta(seconds=0.5)
NO_TEXT = "(The message has no text, only attachments.)"


@dataclass(frozen=True, slots=True)
class HistoryLimits:
    """Age and number of the earlier messages that are sent along with a message."""

    reach: timedelta
    messages: int


class Dispatcher:
    def __init__(
        self,
        database: Database,
        peers: Peers,
        clock: Clock,
        triage: Triage,
        classifier: Classifier,
        history: HistoryLimits,
        guidance: Guidance,
        channels: ChannelSet,
        most_classifying: int,
    ) -> None:
        self._database = database
        self._peers = peers
        self._clock = clock
        self._triage = triage
        self._classifier = classifier
        self._history = history
        self._guidance = guidance
        self._channels = channels
        self._most_classifying = most_classifying
        self._classifying = 0  # messages that a session decides on right now
        self._own_answers = OwnAnswers(
            guidance,
            UndoFinder(database, peers, clock),
            ApprovalAnswers(database, peers, clock),
            FollowUps(database),
        )

    async def route_message(self, lease: Lease) -> Any:
        """Decide once where a message goes and send it. One for several butlers is split into parts."""
        item = decode(InboxItem, lease.payload)
        turns = await self._recent(item)
        try:
            decided = await self._decide(item, turns, lease)
        except ClassificationStopped:
            return _stopped(item)
        kill_point("inbox.decided")
        if decided[0].decision.target == SWITCHBOARD:
            return self._answer_ourselves(item, decided[0].decision)
        if len(decided) > 1 and item.part is None:
            return _split(lease, item, decided)
        index = next(n for n, one in enumerate(decided) if item.part in (None, one.decision.target))
        target = decided[index].decision.target
        if item.part is None:
            await self._keep_order(lease, item, target)
        try:
            await self._send(item, decided, index, turns)
        except PeerUnavailable:
            await self._report_waiting(lease, item)
            raise
        return {"targets": [target]}

    def _answer_ourselves(self, item: InboxItem, decision: RouteDecision) -> FinishWith:
        request = item.request

        async def write(connection: Connection) -> None:
            await queue_reply(connection, SWITCHBOARD, request, decision.part or "")
            await decisions.mark_routed(
                connection, request.request_id, SWITCHBOARD, self._clock.now()
            )

        return FinishWith({"targets": [SWITCHBOARD]}, write)

    async def _keep_order(self, lease: Lease, item: InboxItem, target: str) -> None:
        """Order a decided message behind earlier ones of its conversation for the same butler only, so
        that it does not wait for another butler that is away."""
        async with self._database.transaction() as connection:
            behind = await queue.change_lane(connection, lease, _lane(item, target))
            await queue.notify(connection, lease.queue)  # its old lane is free
        if behind:
            raise EarlierMessageWaits(f"an earlier message for {target} waits")

    async def forward_delivery(self, lease: Lease) -> Any:
        """Send a delivery to the Messenger."""
        messenger = await self._find(MESSENGER)
        delivery = decode(DeliveryRequest, lease.payload)
        return await self._peers.call(
            messenger.name, messenger.url, "deliver", {"delivery": encode(delivery)}
        )

    async def _send(
        self,
        item: InboxItem,
        decided: Sequence[StoredDecision],
        index: int,
        turns: tuple[Turn, ...],
    ) -> None:
        decision, request = decided[index].decision, item.request
        if decided[index].routed_at is not None:
            return
        if decision.after_previous and index:
            _check_previous(decided[index - 1])
        route = RouteRequest(
            request,
            decision.target,
            decision.part or item.text or NO_TEXT,
            decision,
            turns,
            item.attachments,
            report=len(decided) > 1,
            hint=await self._hint(item, decision),
            reactions=self._channels.shows_reactions(request.source_channel),
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

    async def _hint(self, item: InboxItem, decision: RouteDecision) -> str | None:
        """Return suggestions for a message of the owner that neither a reflex nor a model may answer."""
        if self._classifier.has_model or decision.part or not item.request.is_owners:
            return None
        if decision.rule == BY_REFLEX:
            return None
        async with self._database.transaction() as connection:
            known = await registry.list_registrations(connection)
        return await self._guidance.similar(item, known)

    async def _report_waiting(self, lease: Lease, item: InboxItem) -> None:
        """Tell the sender, once per message, that it waits for a butler that is away.

        Also tell the senders of messages behind it, whose turn comes only after this one.
        """
        if self._clock.now() - item.request.received_at <= shortened(NOTICE_AFTER):
            return
        today = self._clock.now().date()
        async with self._database.transaction() as connection:
            behind = await notice_log.unnotified_behind(
                connection, lease, notice_log.AWAY, today, shortened(NOTICE_AFTER), NOTICES_AT_ONCE
            )
            waiting = [item.request, *(decode(InboxItem, one).request for one in behind)]
            unnotified = await notice_log.record_notices(
                connection,
                notice_log.AWAY,
                [str(request.request_id) for request in waiting],
                today,
            )
            for request in waiting:
                if str(request.request_id) in unnotified:
                    # The same text to the same message is one delivery, also on another day.
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

    async def _decide(
        self, item: InboxItem, turns: tuple[Turn, ...], lease: Lease
    ) -> list[StoredDecision]:
        request_id = item.request.request_id
        async with self._database.transaction() as connection:
            known = await decisions.read_decisions(connection, request_id)
            registrations = await registry.list_registrations(connection)
            if known and not _names_removed_butler(known, registrations):
                return known
            for one in known:
                await self._drop_rule_decision(connection, request_id, one.decision)
        own = await self._own_answers.decide(item, registrations)
        if own:
            async with self._database.transaction() as connection:
                return await decisions.settle(connection, request_id, own)
        decision = await self._triage.decide(item, registrations)
        if decision.rule == FALLBACK_RULE:
            async with self._database.transaction() as connection:
                await raise_if_paused(connection, self._clock.now())
            if classified := await self._classify(item, registrations, turns, lease):
                return classified
            if not self._classifier.has_model:
                asked = await self._own_answers.decide_without_model(item, registrations)
                decision = asked[0] if asked else decision
        async with self._database.transaction() as connection:
            return await decisions.settle(connection, request_id, [decision])

    async def _classify(
        self,
        item: InboxItem,
        registrations: Sequence[Registration],
        turns: tuple[Turn, ...],
        lease: Lease,
    ) -> list[StoredDecision]:
        """Ask a session, without holding up what needs none: later messages of the conversation that a
        reflex or rule decides go ahead, and some workers never wait for a session."""
        if not self._classifier.has_choice(registrations):
            return []
        await self._keep_order(lease, item, CLASSIFYING)
        if self._classifying >= self._most_classifying:
            soon = self._clock.now() + CLASSIFY_LATER
            raise Postponed(queue.BUSY, soon, aside=False)
        self._classifying += 1
        try:
            return await self._classifier.classify(item, registrations, turns, lease.attempt)
        finally:
            self._classifying -= 1

    async def _drop_rule_decision(
        self, connection: Connection, request_id: UUID, decision: RouteDecision
    ) -> None:
        """Decide a message without a rule whose butler is gone, and tell the owner once a day."""
        reason = f"the rule ({decision.reason}) names {decision.target}, which is not registered any more"
        await decisions.reopen_message(connection, request_id, reason)
        today = self._clock.now().date()
        if not await notice_log.record_notice(
            connection, notice_log.RULE_TARGET_MISSING, decision.reason, today
        ):
            return
        message = (
            f"Your rule “{decision.reason}” names the butler {decision.target}, which does not exist any"
            " more. The rule is ignored. `butlers rules list` shows it, `butlers rules remove ID`"
            " removes it."
        )
        notice = DeliveryRequest.to_owner(uuid7(), SWITCHBOARD, message)
        await queue_delivery(connection, notice)

    async def _find(self, name: str) -> Registration:
        async with self._database.transaction() as connection:
            found = await registry.find_registration(connection, name)
        if found is None:
            raise PeerUnavailable(f"{name} has not registered with the Switchboard")
        return found


def _names_removed_butler(
    decided: Sequence[StoredDecision], registrations: Sequence[Registration]
) -> bool:
    """Return whether a rule decided for a butler that was removed from the registry."""
    return len(decided) == 1 and (
        decided[0].decision.rule == BY_RULE
        and decided[0].routed_at is None
        and decided[0].decision.target not in {one.name for one in registrations}
    )


def _stopped(item: InboxItem) -> FinishWith:
    """End a message that was stopped before a butler had it."""

    async def write(connection: Connection) -> None:
        await queue_reply(connection, SWITCHBOARD, item.request, STOPPED)

    return FinishWith({"outcome": str(Outcome.CANCELLED), "targets": []}, write)


def _lane(item: InboxItem, target: str) -> str:
    return joined(item.request.conversation, target)


def _split(lease: Lease, item: InboxItem, decided: Sequence[StoredDecision]) -> FinishWith:
    """Queue each part in the place of the whole message: before anything that came later."""

    async def write(connection: Connection) -> None:
        for number, one in enumerate(decided, start=1):
            target = one.decision.target
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

    return FinishWith({"targets": [one.decision.target for one in decided]}, write)


def _check_previous(before: StoredDecision) -> None:
    """Raise unless the previous part, which this one depends on, has ended well."""
    if before.ended_well is None:
        raise PreviousPartOpen(f"{before.decision.target} has not finished the previous part")
    if not before.ended_well:
        raise PreviousPartFailed(f"{before.decision.target} failed in the previous part")


@tool(callers=PEERS)
async def route_ended(ctx: CallContext, request_id: UUID, well: bool) -> dict[str, Any]:
    """Report how a butler's part of a message ended. Parts that waited for it continue."""
    if not await decisions.mark_ended(ctx.connection, request_id, ctx.caller.name, well=well):
        raise NotFound(f"{ctx.caller.name} has no part of the message {request_id}")
    await queue.make_due(ctx.connection, INBOX)
    return {"status": "noted"}


@tool(callers=PEERS)
async def deliver(ctx: CallContext, delivery: DeliveryRequest) -> dict[str, Any]:
    """Accept a delivery for the Messenger. It is stored before this answers."""
    if delivery.origin != ctx.caller.name:
        raise NotAllowed(f"{ctx.caller.name} cannot deliver in the name of {delivery.origin}")
    if delivery.intent is not Intent.SEND and delivery.request_id is not None:
        ctx.service(RequestProgress).answered(delivery.request_id, well=not delivery.failure)
        delivery = await _as_answer(ctx, delivery, delivery.request_id)
    delivery = await _with_outside_links(ctx, delivery)
    key = delivery.idempotency_key
    created = await queue.enqueue(
        ctx.connection, DELIVERIES, key, encode(delivery), lane=delivery.lane
    )
    if created:
        await conversation.record_delivery(ctx.connection, delivery)
    return {"status": "accepted", "duplicate": not created}


async def _as_answer(
    ctx: CallContext, delivery: DeliveryRequest, request_id: UUID
) -> DeliveryRequest:
    """Add what the channel needs to answer the message. If nobody reads answers there, tell the owner."""
    message = await inbox.get_message(ctx.connection, request_id)
    channels = ctx.service(InboundService).intake.channels
    context = channels.reply_context(delivery.channel, message["raw"] if message else None)
    if context.answerable:
        return replace(delivery, subject=context.subject, references=context.references)
    text = delivery.emoji or delivery.message
    to_owner = DeliveryRequest.to_owner(delivery.delivery_id, delivery.origin, text)
    return replace(
        to_owner, request_id=request_id, ordinal=delivery.ordinal, trace_id=delivery.trace_id
    )


async def _with_outside_links(ctx: CallContext, delivery: DeliveryRequest) -> DeliveryRequest:
    """Add the links that other people brought into the conversation: chat programs open links by themselves.
    Links of the sender are not added."""
    if delivery.request_id is None:
        return delivery
    reach = timedelta(minutes=ctx.services.config.triage.history_minutes)
    others = await conversation.texts_of_others(ctx.connection, delivery.request_id, reach)
    found = (*delivery.outside_links, *links_from(delivery.message, others))
    return replace(delivery, outside_links=tuple(dict.fromkeys(found)))


TOOLS = (route_ended, deliver)
