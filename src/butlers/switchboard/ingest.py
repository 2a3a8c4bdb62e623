"""Ingest: check, deduplicate, store and queue each incoming message in one transaction.

The sender and the owner's rules are evaluated here, before any work is done: a message of an unknown
sender is held until the owner decides, and one that a rule skips is stored and goes no further.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Literal
from uuid import UUID

from butlers.channels.registry import ChannelSet
from butlers.db.database import Connection
from butlers.domain.caller import CallerKind
from butlers.domain.clock import Clock, uuid7
from butlers.domain.errors import ButlersError, InvalidMessage, MessageTooLarge, QueueFull
from butlers.domain.message import (
    BLOCKED,
    BY_RULE,
    Attachment,
    Command,
    Control,
    Event,
    InboundEnvelope,
    InboxItem,
    IngestionTier,
    Payload,
    PolicyTier,
    RequestContext,
    RouteDecision,
    Sender,
    Source,
    headers_of,
    parse_command,
)
from butlers.domain.queues import COMMANDS, INBOX
from butlers.domain.trace import TraceContext, current_trace
from butlers.domain.triage import RuleAction, TriageRule
from butlers.queue import leased_queue as queue
from butlers.switchboard import decisions, inbox, senders
from butlers.switchboard.connectors import IngestOutcome, IngestStats
from butlers.switchboard.inbox import MessageState
from butlers.switchboard.rules import RuleInput, first_match, read_rules
from butlers.tools.attachments import (
    MAX_FILE_BYTES,
    BlobStore,
    media_type_of,
    reason_to_refuse,
)
from butlers.tools.context import CallContext
from butlers.tools.declaration import tool
from butlers.wire.codec import encode

NO_ENDPOINT = "(not said)"
HISTORY_REASON = "from before the channel was connected"
MAX_ATTACHMENTS = 10


@dataclass(frozen=True, slots=True)
class InboundService:
    """Accepts messages and counts their outcomes."""

    intake: MessageIntake
    stats: IngestStats

    async def accept(
        self, connection: Connection, envelope: InboundEnvelope, *, counted_as: str | None = None
    ) -> IngestResult:
        """Accept a message and count its outcome, under its endpoint or under ``counted_as``."""
        endpoint = counted_as or envelope.source.endpoint_identity
        try:
            accepted = await self.intake.accept(connection, envelope)
        except ButlersError as error:
            if not error.retryable:
                self.stats.count(endpoint, IngestOutcome.REFUSED, error.message)
            raise
        self.stats.count(endpoint, _outcome(accepted, envelope))
        return accepted

    def count_invalid(self, data: Any, reason: str) -> None:
        """Count data that is no envelope, under its endpoint if it names one."""
        source = data.get("source") if isinstance(data, dict) else None
        endpoint = source.get("endpoint_identity") if isinstance(source, dict) else None
        named = endpoint.strip() if isinstance(endpoint, str) else ""
        self.stats.count(named or NO_ENDPOINT, IngestOutcome.REFUSED, reason)


def _outcome(accepted: IngestResult, envelope: InboundEnvelope) -> IngestOutcome:
    if accepted.duplicate:
        return IngestOutcome.DUPLICATE
    noted = envelope.control.ingestion_tier is IngestionTier.METADATA
    return IngestOutcome.NOTED if noted else IngestOutcome.NEW


@dataclass(frozen=True, slots=True)
class IngestResult:
    request_id: UUID
    duplicate: bool
    state: MessageState = MessageState.ACCEPTED
    target: str | None = None  # where a rule sends it


@dataclass(frozen=True, slots=True)
class MessageIntake:
    """Stores and queues messages."""

    clock: Clock
    channels: ChannelSet
    blobs: BlobStore
    capacity: int
    dedupe_window: timedelta  # for sources whose messages have no id

    async def accept(self, connection: Connection, envelope: InboundEnvelope) -> IngestResult:
        """Store and queue a new message, or report a duplicate. Raises QueueFull beyond the capacity."""
        envelope.check(self.channels.names)
        request = await self._request(connection, envelope)
        text = envelope.payload.normalized_text
        message = RuleInput.of(request, text, envelope.headers)
        admission = await self._evaluate(connection, request, message, envelope.control)
        if envelope.is_button and not request.is_owners:
            admission = Admission(MessageState.SKIPPED, "only the owner may press buttons")
        if envelope.payload.attachments:
            # Before files are written: a rejected message would leave them behind at every attempt.
            known = await inbox.find_known(connection, envelope)
            if known is not None:
                return IngestResult(known, duplicate=True)
            await self._check_room(connection, request, text, admission)
        envelope = await self._store_files(envelope, admission)
        known = await inbox.store_message(
            connection, request, envelope, admission.state, admission.reason, admission.rule_id,
            self.dedupe_window,
        )  # fmt: skip
        if known is not None:
            return IngestResult(known, duplicate=True)
        if admission.state is MessageState.ACCEPTED:
            tier = self.channels.tier_of_known(request.source_channel, envelope.control.policy_tier)
            item = InboxItem(
                request,
                envelope.payload.normalized_text,
                admission.tier(tier),
                envelope.event.external_reply_to,
                envelope.payload.attachments,
            )
            await self._enqueue(connection, item, admission)
        elif admission.state is MessageState.HELD:
            await senders.hold(connection, request)
        target = admission.route.target if admission.route else None
        return IngestResult(request.request_id, False, admission.state, target)

    async def store_history(
        self, connection: Connection, envelopes: Sequence[InboundEnvelope]
    ) -> int:
        """Store messages from before the channel was connected; return how many were new."""
        trace = (current_trace() or TraceContext.new()).trace_id
        found = []
        for envelope in envelopes:
            envelope.check(self.channels.names)
            source = envelope.source
            sender = self.channels.normalize_address(source.channel, envelope.sender.identity)
            request = RequestContext(
                request_id=uuid7(),
                received_at=self.clock.now(),
                source_channel=source.channel,
                source_endpoint_identity=source.endpoint_identity,
                source_sender_identity=sender,
                source_thread_identity=envelope.event.external_thread_id,
                source_event_identity=envelope.event.external_event_id.strip() or None,
                trace_id=trace,
            )
            found.append((request, envelope))
        return await inbox.store_history(connection, found, HISTORY_REASON)

    async def admit(self, connection: Connection, row: Mapping[str, Any]) -> None:
        """Accept a held message, as if it came now from a known sender."""
        item = inbox.item_from_row(row)
        request, control = item.request, Control(policy_tier=item.tier)
        message = RuleInput.of(request, item.text, headers_of(row["raw"]))
        admission = await self._evaluate(connection, request, message, control)
        if admission.state is not MessageState.ACCEPTED:
            await inbox.end_message(
                connection, request.request_id, admission.state, admission.reason, admission.rule_id
            )
            return
        item = replace(item, tier=admission.tier(item.tier))
        await self._enqueue(connection, item, admission, bounded=False)

    async def _check_room(
        self, connection: Connection, request: RequestContext, text: str, admission: Admission
    ) -> None:
        if admission.state is MessageState.HELD:
            await senders.check_room(connection, request)
        elif admission.state is MessageState.ACCEPTED and not _command(request, text):
            await self._check_capacity(connection)

    async def _check_capacity(self, connection: Connection) -> None:
        if await queue.is_full(connection, INBOX, self.capacity):
            raise QueueFull(f"{self.capacity} messages wait to be routed already")

    async def _store_files(
        self, envelope: InboundEnvelope, admission: Admission
    ) -> InboundEnvelope:
        """Return the envelope as it is stored. A message that is only noted loses its content."""
        if admission.state is MessageState.NOTED:
            return replace(envelope, payload=Payload(normalized_text=""))
        files = await _store_attachments(envelope.payload.attachments, self.blobs)
        return replace(envelope, payload=replace(envelope.payload, attachments=files))

    async def _request(self, connection: Connection, envelope: InboundEnvelope) -> RequestContext:
        source, event = envelope.source, envelope.event
        trace = current_trace() or TraceContext.new()
        sender = self.channels.normalize_address(source.channel, envelope.sender.identity)
        contact = await senders.find_contact(connection, source.channel, sender)
        if contact is None:
            await senders.lock_sender(connection, source.channel, sender)
            contact = await senders.find_contact(connection, source.channel, sender)
        return RequestContext(
            request_id=uuid7(),
            received_at=self.clock.now(),
            source_channel=source.channel,
            source_endpoint_identity=source.endpoint_identity,
            source_sender_identity=sender,
            source_thread_identity=event.external_thread_id,
            source_event_identity=event.external_event_id.strip() or None,
            sender_roles=contact.roles or (senders.KNOWN,) if contact else (),
            trace_id=envelope.control.trace_id or trace.trace_id,
        )

    async def _evaluate(
        self, connection: Connection, request: RequestContext, message: RuleInput, control: Control
    ) -> Admission:
        if BLOCKED in request.sender_roles:
            return Admission(MessageState.SKIPPED, "the owner has blocked the sender")
        if _command(request, message.text):
            # No rule may keep the owner's commands away.
            return Admission(MessageState.ACCEPTED, None)
        rule = first_match(await read_rules(connection), message)
        if rule is not None and rule.action in _ENDS:
            return Admission(_ENDS[rule.action], str(rule), rule)
        if control.ingestion_tier is IngestionTier.METADATA:
            return Admission(MessageState.NOTED, "its connector sent no content")
        if control.ingestion_tier is IngestionTier.HISTORY:
            return Admission(MessageState.SKIPPED, HISTORY_REASON)
        if control.ingestion_tier is IngestionTier.BULK and not request.sender_roles:
            return Admission(MessageState.SKIPPED, "automatic or bulk mail of an unknown sender")
        if not request.sender_roles:
            return Admission(MessageState.HELD, "the sender is unknown", rule)
        return Admission(MessageState.ACCEPTED, None, rule)

    async def _enqueue(
        self, connection: Connection, item: InboxItem, admission: Admission, *, bounded: bool = True
    ) -> None:
        request = item.request
        command = _command(request, item.text)
        if command is not None:
            # In a queue of its own: a command must get through when the inbox is blocked.
            key = str(request.request_id)
            await queue.enqueue(connection, COMMANDS, key, encode(item), lane=command.lane)
            return
        if bounded:
            await self._check_capacity(connection)
        if admission.route is not None:
            await decisions.settle(connection, request.request_id, [admission.route])
        await queue.enqueue(
            connection,
            INBOX,
            str(request.request_id),
            encode(item),
            priority=item.tier.rank,
            lane=request.conversation,
        )


def _command(request: RequestContext, text: str) -> Command | None:
    return parse_command(text) if request.is_owners else None


_ENDS = {
    RuleAction.SKIP: MessageState.SKIPPED,
    RuleAction.METADATA_ONLY: MessageState.NOTED,
}


@dataclass(frozen=True, slots=True)
class Admission:
    """The state in which a message is stored, the reason, and the rule that applied."""

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

    def tier(self, requested: PolicyTier) -> PolicyTier:
        lowered = self.rule is not None and self.rule.action is RuleAction.LOW_PRIORITY
        return PolicyTier.DEFAULT if lowered else requested


async def _store_attachments(
    files: Sequence[Attachment], blobs: BlobStore
) -> tuple[Attachment, ...]:
    """Store the files and return references. A file that is not accepted rejects the whole message."""
    if len(files) > MAX_ATTACHMENTS:
        raise InvalidMessage(
            f"the message has {len(files)} attachments; at most {MAX_ATTACHMENTS} are accepted",
            hint="send the rest in another message",
        )
    return tuple([await asyncio.to_thread(_store_attachment, file, blobs) for file in files])


def _store_attachment(file: Attachment, blobs: BlobStore) -> Attachment:
    content = _content(file, blobs)
    if refusal := reason_to_refuse(file.media_type, content):
        raise InvalidMessage(
            f"the attachment {file.filename or ''!r} is not accepted: {refusal}",
            hint="send images, sound, video, text, PDF, office documents or archives",
        )
    found = media_type_of(content)
    known = file.media_type if found in ("text/plain", "application/octet-stream") else found
    return Attachment(known, file.filename, len(content), blobs.put(content))


def _content(file: Attachment, blobs: BlobStore) -> bytes:
    if (file.content is None) == (file.storage_ref is None):
        raise InvalidMessage(
            "an attachment needs content or storage_ref, and not both", hint="content is base64"
        )
    if file.storage_ref is not None:
        return blobs.get(file.storage_ref)
    assert file.content is not None
    if len(file.content) > MAX_FILE_BYTES * 4 // 3 + 4:
        raise MessageTooLarge(
            f"an attachment has more than {MAX_FILE_BYTES:,} bytes", hint="send a smaller one"
        )
    try:
        return base64.b64decode(file.content, validate=True)
    except binascii.Error as error:
        raise InvalidMessage(
            f"an attachment's content is not base64: {error}", hint="encode it as base64"
        ) from None


def _count_invalid(ctx: CallContext, arguments: dict[str, Any], reason: str) -> None:
    ctx.service(InboundService).count_invalid(arguments, reason)


@tool(callers=frozenset({CallerKind.OWNER}), on_invalid=_count_invalid)
async def ingest(
    ctx: CallContext,
    schema_version: Literal["ingest.v1"],
    source: Source,
    event: Event,
    sender: Sender,
    payload: Payload,
    control: Control | None = None,
) -> dict[str, Any]:
    """Accept one message. It is committed before this answers; a repeat is reported as duplicate."""
    envelope = InboundEnvelope(source, event, sender, payload, control or Control(), schema_version)
    return as_answer(await ctx.service(InboundService).accept(ctx.connection, envelope))


def as_answer(accepted: IngestResult) -> dict[str, Any]:
    return {
        "request_id": str(accepted.request_id),
        "status": str(accepted.state),
        "duplicate": accepted.duplicate,
        "triage_target": accepted.target,
    }


TOOLS = (ingest,)
