"""A butler's word to its owner about itself, which no session of it says."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from butlers.domain.delivery import DeliveryRequest
from butlers.queue.outbox import queue_delivery

if TYPE_CHECKING:
    from butlers.daemon.butler import Butler


async def tell_owner(butler: Butler, delivery_id: UUID, message: str) -> None:
    """Without a switchboard there is no way to it."""
    name = butler.config.name
    if butler.config.switchboard is None:
        return
    async with butler.database.transaction() as connection:
        await queue_delivery(connection, DeliveryRequest.to_owner(delivery_id, name, message))
