"""The Messenger's counter: a delivery is written down, acknowledged, sent, and its receipt kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from butlers.channels.base import Channel
from butlers.domain.delivery import DeliveryRequest
from butlers.domain.errors import DeliveryRefused
from butlers.domain.faults import kill_point
from butlers.store import deliveries, queue
from butlers.store.database import Connection, Database
from butlers.store.queue import Lease
from butlers.wire.codec import decode, encode
from butlers.wire.telemetry import delivery_span

DELIVERIES = "deliveries"


async def accept_delivery(connection: Connection, delivery: DeliveryRequest) -> UUID:
    """Keep a delivery before anything is sent; one key is one delivery."""
    delivery_id = await deliveries.store_delivery(connection, delivery)
    if delivery_id == delivery.delivery_id:
        await queue.enqueue(connection, DELIVERIES, str(delivery_id), encode(delivery))
    return delivery_id


class Counter:
    def __init__(self, database: Database, channels: Mapping[str, Channel]) -> None:
        self._database = database
        self._channels = channels

    async def send(self, lease: Lease) -> Any:
        delivery = decode(DeliveryRequest, lease.payload)
        with delivery_span(
            delivery.delivery_id, delivery.request_id, delivery.channel, delivery.origin
        ):
            return await self._send(delivery)

    async def _send(self, delivery: DeliveryRequest) -> Any:
        channel = self._channels.get(delivery.channel)
        if channel is None:
            raise DeliveryRefused(
                f"there is no channel {delivery.channel!r}",
                hint=f"channels: {', '.join(self._channels)}",
            )
        receipt = await channel.send(delivery)
        kill_point("deliveries.sent")
        async with self._database.transaction() as connection:
            await deliveries.store_receipt(connection, receipt)
        return {"provider_message_id": receipt.provider_message_id}
