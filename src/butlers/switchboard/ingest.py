"""The desk at the one door in: a message is checked, deduplicated, stored and queued in one transaction.

Who wrote and what the owner's rules say is settled here, before anybody works on it: a stranger's message
is held until the owner says who that is, one that a rule skips is kept and goes no further.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any
from uuid import UUID

from butlers.channels.registry import ChannelSet
from butlers.db.database import Connection
from butlers.domain.clock import Clock, uuid7
from butlers.domain.delivery import DeliveryRequest
from butlers.domain.errors import QueueFull
from butlers.domain.message import (
    BY_RULE,
    Attachment,
    Command,
    Control,
    InboundEnvelope,
    InboxItem,
    IngestionTier,
    Payload,
    PolicyTier,
    RequestContext,
    RouteDecision,
    headers_of,
    parse_command,
)
from butlers.domain.queues import COMMANDS, INBOX
from butlers.domain.trace import TraceContext, current_trace
from butlers.domain.triage import RuleAction, TriageRule
from butlers.queue import leased_queue as queue
from butlers.switchboard import contacts, decisions, inbox
from butlers.switchboard import rule_store as rules
from butlers.switchboard import senders as strangers
from butlers.switchboard.attachments import keep_all
from butlers.switchboard.inbox import MessageState
from butlers.switchboard.rules import Letter, first_match
from butlers.tools.attachments import BlobStore
from butlers.wire.codec import decode, encode

Post = Callable[[Connection, DeliveryRequest], Awaitable[UUID]]


@dataclass(frozen=True, slots=True)
class Accepted:
    request_id: UUID
    duplicate: bool
    state: MessageState = MessageState.ACCEPTED
    target: str | None = None  # where a rule sends it


@dataclass(frozen=True, slots=True)
class MessageIntake:
    """What it takes to accept a message."""

    clock: Clock
    channels: ChannelSet
    blobs: BlobStore
    post: Post  # how the owner is asked
    capacity: int
    dedupe_window: timedelta  # for sources that give their messages no names

    async def accept(self, connection: Connection, envelope: InboundEnvelope) -> Accepted:
        """Keep a new message, or say that it is known. Beyond the capacity a new one is sent away."""
        envelope.check(self.channels.names)
        request = await self._request(connection, envelope)
        verdict = await self._judge(
            connection, request, _letter(request, envelope), envelope.control
        )
        if envelope.payload.attachments:
            # Before a file is written: what is sent away would leave it behind, each time that it comes.
            known = await inbox.find_known(connection, envelope)
            if known is not None:
                return Accepted(known, duplicate=True)
            await self._check_room(connection, request, envelope.payload.normalized_text, verdict)
        envelope = await self._kept(envelope, verdict)
        known = await inbox.store_message(
            connection, request, envelope, verdict.state, verdict.reason, verdict.rule_id,
            self.dedupe_window,
        )  # fmt: skip
        if known is not None:
            return Accepted(known, duplicate=True)
        if verdict.state is MessageState.ACCEPTED:
            tier = verdict.tier(envelope.control.policy_tier)
            item = InboxItem(
                request,
                envelope.payload.normalized_text,
                tier,
                envelope.event.external_reply_to,
                envelope.payload.attachments,
            )
            await self._enqueue(connection, item, verdict)
        elif verdict.state is MessageState.HELD:
            await strangers.hold(connection, request, self.post)
        target = verdict.route.target if verdict.route else None
        return Accepted(request.request_id, False, verdict.state, target)

    async def admit(self, connection: Connection, row: Mapping[str, Any]) -> None:
        """Let a message in that was held, as if it came now from somebody known."""
        request = RequestContext(
            request_id=row["request_id"],
            received_at=row["received_at"],
            source_channel=row["channel"],
            source_endpoint_identity=row["endpoint"],
            source_sender_identity=row["sender"],
            source_thread_identity=row["thread"],
            source_event_identity=row["event_id"],
            sender_roles=tuple(row["sender_roles"]),
            trace_id=row["trace_id"],
        )
        letter = Letter(row["channel"], row["sender"], row["text"], headers_of(row["raw"]))
        control = Control(policy_tier=PolicyTier(row["policy_tier"]))
        verdict = await self._judge(connection, request, letter, control)
        if verdict.state is not MessageState.ACCEPTED:
            await inbox.end_message(
                connection, request.request_id, verdict.state, verdict.reason, verdict.rule_id
            )
            return
        files = tuple(decode(Attachment, file) for file in row["attachments"])
        tier = verdict.tier(control.policy_tier)
        item = InboxItem(request, row["text"], tier, row["reply_to"], files)
        await self._enqueue(connection, item, verdict, bounded=False)

    async def _check_room(
        self, connection: Connection, request: RequestContext, text: str, verdict: Verdict
    ) -> None:
        if verdict.state is MessageState.HELD:
            await strangers.check_room(connection, request)
        elif verdict.state is MessageState.ACCEPTED and not _command(request, text):
            await self._check_capacity(connection)

    async def _check_capacity(self, connection: Connection) -> None:
        if await queue.is_full(connection, INBOX, self.capacity):
            raise QueueFull(f"{self.capacity} messages wait to be routed already")

    async def _kept(self, envelope: InboundEnvelope, verdict: Verdict) -> InboundEnvelope:
        """What is kept of it. Of one that is only noted, nothing but that it came."""
        if verdict.state is MessageState.NOTED:
            return replace(envelope, payload=Payload(normalized_text=""))
        files = await keep_all(envelope.payload.attachments, self.blobs)
        return replace(envelope, payload=replace(envelope.payload, attachments=files))

    async def _request(self, connection: Connection, envelope: InboundEnvelope) -> RequestContext:
        source, event = envelope.source, envelope.event
        trace = current_trace() or TraceContext.new()
        sender = self.channels.normalize_address(source.channel, envelope.sender.identity)
        who = await contacts.find_contact(connection, source.channel, sender)
        if who is None:
            await contacts.lock_sender(connection, source.channel, sender)
            who = await contacts.find_contact(connection, source.channel, sender)
        return RequestContext(
            request_id=uuid7(),
            received_at=self.clock.now(),
            source_channel=source.channel,
            source_endpoint_identity=source.endpoint_identity,
            source_sender_identity=sender,
            source_thread_identity=event.external_thread_id,
            source_event_identity=event.external_event_id.strip() or None,
            sender_roles=who.roles or (strangers.KNOWN,) if who else (),
            trace_id=envelope.control.trace_id or trace.trace_id,
        )

    async def _judge(
        self, connection: Connection, request: RequestContext, letter: Letter, control: Control
    ) -> Verdict:
        if strangers.is_blocked(request):
            return Verdict(MessageState.SKIPPED, "the owner has blocked the sender")
        if _command(request, letter.text):
            # No rule keeps the owner from stopping it all.
            return Verdict(MessageState.ACCEPTED, None)
        rule = first_match(await rules.read_rules(connection), letter)
        if rule is not None and rule.action in _ENDS:
            return Verdict(_ENDS[rule.action], str(rule), rule)
        if control.ingestion_tier is IngestionTier.METADATA:
            return Verdict(MessageState.NOTED, "its connector sent no more than that it came")
        if not request.sender_roles:
            return Verdict(MessageState.HELD, "nobody knows the sender yet", rule)
        return Verdict(MessageState.ACCEPTED, None, rule)

    async def _enqueue(
        self, connection: Connection, item: InboxItem, verdict: Verdict, *, bounded: bool = True
    ) -> None:
        request = item.request
        told = _command(request, item.text)
        if told is not None:
            # Beside the queue and its lanes: it must get through when nothing else does.
            key = str(request.request_id)
            await queue.enqueue(connection, COMMANDS, key, encode(item), lane=told.lane)
            return
        if bounded:
            await self._check_capacity(connection)
        if verdict.route is not None:
            await decisions.settle(connection, request.request_id, [verdict.route])
        await enqueue_item(connection, item)


def _command(request: RequestContext, text: str) -> Command | None:
    return parse_command(text) if request.is_owners else None


def _letter(request: RequestContext, envelope: InboundEnvelope) -> Letter:
    return Letter(
        request.source_channel,
        request.source_sender_identity,
        envelope.payload.normalized_text,
        envelope.headers,
    )


async def enqueue_item(connection: Connection, item: InboxItem) -> None:
    await queue.enqueue(
        connection,
        INBOX,
        str(item.request.request_id),
        encode(item),
        priority=item.tier.rank,
        lane=item.request.conversation,
    )


_ENDS = {
    RuleAction.SKIP: MessageState.SKIPPED,
    RuleAction.METADATA_ONLY: MessageState.NOTED,
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of a message at the door."""

    state: MessageState
    reason: str | None
    rule: TriageRule | None = None

    @property
    def rule_id(self) -> UUID | None:
        return self.rule.rule_id if self.rule else None

    @property
    def route(self) -> RouteDecision | None:
        if self.rule is None or self.rule.target is None:
            return None
        return RouteDecision(self.rule.target, BY_RULE, str(self.rule))

    def tier(self, asked: PolicyTier) -> PolicyTier:
        lowered = self.rule is not None and self.rule.action is RuleAction.LOW_PRIORITY
        return PolicyTier.DEFAULT if lowered else asked
