"""The Messenger as a role: its channels, the sender of deliveries, and the notices to the owner."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, ClassVar
from uuid import UUID

from butlers.channels.base import ChannelSender
from butlers.channels.console.mailbox import post_mail
from butlers.channels.console.sender import ConsoleChannel
from butlers.channels.webhook.sender import Hook, WebhookChannel
from butlers.config.butler import ButlerConfig, ButlerKind
from butlers.db.database import Connection
from butlers.domain.delivery import DeliveryRequest
from butlers.domain.queues import DELIVERIES
from butlers.messenger import approval_tools, tools
from butlers.messenger.delivery_notices import Housekeeper
from butlers.messenger.sender import Counter
from butlers.messenger.terms import Terms
from butlers.messenger.traffic import Traffic
from butlers.tools.request_path import read_hops
from butlers.tools.role import Hop, QueueWork, Role, RoleParts

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


class MessengerRole(Role):
    tools = (*tools.TOOLS, *approval_tools.TOOLS)
    retention: ClassVar[Mapping[str, str]] = {
        # Attempts and pending actions of a delivery are deleted with it.
        "deliveries": """
            accepted_at < $1 AND delivery_id::text <> ALL($2)
            AND coalesce(request_id::text, '') <> ALL($2)
            AND (state IN ('delivered', 'discarded')
                 OR state IN ('unknown', 'expired', 'failed') AND told_at IS NOT NULL)""",
        "console_mailbox": "shown_at < $1 AND coalesce(request_id::text, '') <> ALL($2)",
    }
    _parts: RoleParts
    _sender: Counter
    _notices: Housekeeper

    @classmethod
    def belongs_to(cls, config: ButlerConfig) -> bool:
        return config.role is ButlerKind.MESSENGER

    async def open(self, parts: RoleParts) -> None:
        self._parts = parts
        limits, terms = parts.config.delivery, Terms.of(parts.config)
        traffic = Traffic(
            parts.clock,
            per_minute=limits.per_minute,
            per_recipient_per_minute=limits.per_recipient_per_minute,
        )
        self._sender = Counter(parts.database, _channels(parts), terms, traffic, parts.clock)
        await self._sender.open()
        self._notices = Housekeeper(
            parts.config.name, parts.database, parts.listener, terms, parts.clock
        )

    def services(self) -> Sequence[object]:
        return (self._sender.traffic,)

    def workers(self) -> Sequence[QueueWork]:
        return (QueueWork(DELIVERIES, self._sender.send, self._parts.config.buffer.worker_count),)

    def loops(self) -> Mapping[str, Callable[[], Coroutine[Any, Any, None]]]:
        return {"delivery notices": self._notices.run}

    async def request_hops(self, connection: Connection, request_id: UUID) -> list[Hop]:
        return [
            *await read_hops(connection, "delivery", DELIVERY_HOPS, request_id),
            *await read_hops(connection, "attempt", ATTEMPT_HOPS, request_id),
        ]


def _channels(parts: RoleParts) -> dict[str, ChannelSender]:
    async def post(delivery: DeliveryRequest) -> int:
        async with parts.database.transaction() as connection:
            return await post_mail(connection, delivery)

    console = ConsoleChannel(post, parts.clock)
    channels: dict[str, ChannelSender] = {console.name: console}
    if hooks := parts.config.channels.webhook:
        webhook = WebhookChannel(
            {
                name: Hook(hook.url, hook.secret_name, hook.idempotent)
                for name, hook in hooks.items()
            },
            parts.credentials.require,
            parts.clock,
        )
        channels[webhook.name] = webhook
    return channels
