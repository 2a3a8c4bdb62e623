"""The Messenger as a role: sends deliveries over the channels and tells the owner of those that failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from uuid import UUID

from butlers.channels.base import Channel, OutboundContext
from butlers.channels.registry import build_senders, load_channels
from butlers.config.butler import ButlerConfig, ButlerKind
from butlers.db.database import Connection
from butlers.domain.queues import DELIVERIES
from butlers.messenger import tools
from butlers.messenger.delivery_intake import DeliveryIntake
from butlers.messenger.delivery_notices import DeliveryNotices
from butlers.messenger.limits import DeliveryLimits
from butlers.messenger.policy import DeliveryPolicy
from butlers.messenger.sender import DeliverySender
from butlers.tools.declaration import ToolFunction
from butlers.tools.gate import CallGate
from butlers.tools.requests import read_hops
from butlers.tools.role import Hop, Loop, QueueWork, Role, RoleParts

DELIVERY_HOPS = """
SELECT accepted_at AS at, delivery_id, origin, intent, channel, target, state, reason, not_before,
       expires_at, provider_message_id, delivered_at
FROM deliveries WHERE request_id = $1
"""
ATTEMPT_HOPS = """
SELECT started_at AS at, delivery_id, number, channel, target, ended_at, outcome, error_code, error,
       response
FROM delivery_attempts JOIN deliveries USING (delivery_id) WHERE request_id = $1
"""
RETENTION = {
    # Attempts and pending actions of a delivery are deleted with it.
    "deliveries": """
        accepted_at < $1 AND delivery_id::text <> ALL($2)
        AND coalesce(request_id::text, '') <> ALL($2)
        AND (state IN ('delivered', 'discarded')
             OR state IN ('unknown', 'expired', 'failed') AND told_at IS NOT NULL)"""
}


class MessengerRole(Role):
    _parts: RoleParts
    _channels: Sequence[Channel] = ()
    _of_channels: Sequence[object] = ()
    _policy: DeliveryPolicy
    _sender: DeliverySender
    _gate: CallGate | None
    _notices: DeliveryNotices

    @classmethod
    def belongs_to(cls, config: ButlerConfig) -> bool:
        return config.role is ButlerKind.MESSENGER

    @classmethod
    def validate_config(cls, config: ButlerConfig, home: Path) -> None:
        load_channels(home).outbound(config)

    async def open(self, parts: RoleParts) -> None:
        config, clock, database = parts.config, parts.clock, parts.database
        context = OutboundContext(clock, parts.credentials.require, database)
        outbound = load_channels(parts.home).outbound(config)
        senders = build_senders(outbound, context)
        self._parts = parts
        self._gate = parts.find(CallGate)
        self._of_channels = [
            service
            for channel, sender in senders.items()
            for service in channel.services(outbound[channel], context, sender)
        ]
        self._channels = tuple(senders)
        by_name = {channel.name: sender for channel, sender in senders.items()}
        self._policy = DeliveryPolicy.from_config(config, frozenset(by_name))
        limits = DeliveryLimits(
            clock,
            per_minute=config.delivery.per_minute,
            per_recipient_per_minute=config.delivery.per_recipient_per_minute,
        )
        self._sender = DeliverySender(database, by_name, self._policy, limits, clock)
        await self._sender.open()
        self._notices = DeliveryNotices(config.name, database, parts.listener, self._policy, clock)

    def services(self) -> Sequence[object]:
        parts = self._parts
        intake = DeliveryIntake(parts.database, self._policy, parts.clock, self._gate)
        return (self._policy, self._sender.limits, intake, *self._of_channels)

    def tools(self) -> Sequence[ToolFunction]:
        of_channels = (function for channel in self._channels for function in channel.tools)
        return (*tools.TOOLS, *of_channels)

    def workers(self) -> Sequence[QueueWork]:
        return (QueueWork(DELIVERIES, self._sender.send, self._parts.config.buffer.worker_count),)

    def loops(self) -> Mapping[str, Loop]:
        return {"delivery notices": self._notices.run}

    def retention(self) -> Mapping[str, str]:
        tables = dict(RETENTION)
        for channel in self._channels:
            tables |= channel.retention
        return tables

    async def request_hops(self, connection: Connection, request_id: UUID) -> list[Hop]:
        return [
            *await read_hops(connection, "delivery", DELIVERY_HOPS, request_id),
            *await read_hops(connection, "attempt", ATTEMPT_HOPS, request_id),
        ]
