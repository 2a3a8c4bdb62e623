"""What every channel is: a way to send one delivery, with the platform's own id as proof."""

from __future__ import annotations

from typing import Protocol

from butlers.domain.delivery import DeliveryReceipt, DeliveryRequest


class Channel(Protocol):
    @property
    def name(self) -> str: ...

    async def send(self, delivery: DeliveryRequest) -> DeliveryReceipt: ...
