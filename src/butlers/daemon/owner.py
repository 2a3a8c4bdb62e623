"""A butler's word to its owner about itself, which no session of it says."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from butlers.domain.delivery import DeliveryRequest, Intent
from butlers.routing.notify import queue_delivery
from butlers.scheduling.post import OWNER

if TYPE_CHECKING:
    from butlers.daemon.butler import Butler


async def tell_owner(butler: Butler, delivery_id: UUID, message: str) -> None:
    """The same id is one delivery, also after a crash. Without a switchboard there is no way to it."""
    name = butler.config.name
    if butler.config.switchboard is None:
        return
    delivery = DeliveryRequest(delivery_id, name, Intent.SEND, OWNER.channel, OWNER.target, message)
    async with butler.database.transaction() as connection:
        await queue_delivery(connection, delivery)
