"""The console: what a person types in a terminal comes in, replies go to a mailbox that terminals read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from butlers.domain.clock import Clock
from butlers.domain.delivery import OWNERS_CONSOLE, DeliveryReceipt, DeliveryRequest
from butlers.domain.ids import uuid7
from butlers.domain.message import (
    Channel,
    Control,
    Event,
    InboundEnvelope,
    Payload,
    PolicyTier,
    Sender,
    Source,
)

Post = Callable[[DeliveryRequest], Awaitable[int]]


def parse(text: str, clock: Clock, *, event_id: str | None = None) -> InboundEnvelope:
    """The envelope of one typed line."""
    return InboundEnvelope(
        source=Source(Channel.CONSOLE, "console", OWNERS_CONSOLE),
        event=Event(event_id or str(uuid7()), clock.now()),
        sender=Sender("owner"),
        payload=Payload(text, raw={"text": text}),
        control=Control(policy_tier=PolicyTier.INTERACTIVE),
    )


class ConsoleChannel:
    name = str(Channel.CONSOLE)

    def __init__(self, post: Post, clock: Clock) -> None:
        self._post = post
        self._clock = clock

    def idempotent(self, target: str) -> bool:
        return True  # the mailbox has one entry per delivery id

    def line(self, target: str) -> str | None:
        return None

    async def send(self, delivery: DeliveryRequest) -> DeliveryReceipt:
        position = await self._post(delivery)
        return DeliveryReceipt(delivery.delivery_id, self.name, str(position), self._clock.now())
