"""What every channel is: a way to send one delivery, with the platform's own id as proof."""

from __future__ import annotations

from typing import Protocol

from butlers.domain.delivery import DeliveryReceipt, DeliveryRequest


class Channel(Protocol):
    """A failure is told by its type: ``DeliveryRefused`` (never), ``ChannelUnavailable``,
    ``ChannelFailed`` and ``ChannelBusy`` (nothing was sent), ``DeliveryUncertain`` (nobody knows)."""

    @property
    def name(self) -> str: ...

    def idempotent(self, target: str) -> bool:
        """Whether the same delivery, sent twice, arrives there once."""

    def line(self, target: str) -> str | None:
        """What fails, and is counted, as one; None: not counted, because it does not leave the house."""

    async def send(self, delivery: DeliveryRequest) -> DeliveryReceipt: ...
