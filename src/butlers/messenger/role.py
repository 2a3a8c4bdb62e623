"""The Messenger's parts: its channels, the counter that sends, and the housekeeper that tells the owner."""

from __future__ import annotations

from typing import TYPE_CHECKING

from butlers.channels.base import Channel
from butlers.channels.console.mailbox import post_mail
from butlers.channels.console.sender import ConsoleChannel
from butlers.channels.webhook.sender import Hook, WebhookChannel
from butlers.domain.delivery import DeliveryRequest
from butlers.messenger.delivery_notices import Housekeeper
from butlers.messenger.sender import Counter
from butlers.messenger.terms import Terms
from butlers.messenger.traffic import Traffic

if TYPE_CHECKING:
    from butlers.daemon.butler import Butler


async def open_office(butler: Butler) -> None:
    given, terms = butler.config.delivery, Terms.of(butler.config)
    traffic = Traffic(
        butler.clock,
        per_minute=given.per_minute,
        per_recipient_per_minute=given.per_recipient_per_minute,
    )
    butler.counter = Counter(butler.database, _channels(butler), terms, traffic, butler.clock)
    await butler.counter.open()
    keeper = Housekeeper(butler.config.name, butler.database, butler.listener, terms, butler.clock)
    butler.background(keeper.run(), "housekeeper")


def _channels(butler: Butler) -> dict[str, Channel]:
    async def post(delivery: DeliveryRequest) -> int:
        async with butler.database.transaction() as connection:
            return await post_mail(connection, delivery)

    console = ConsoleChannel(post, butler.clock)
    channels: dict[str, Channel] = {console.name: console}
    if hooks := butler.config.channels.webhook:
        webhook = WebhookChannel(
            {
                name: Hook(hook.url, hook.secret_name, hook.idempotent)
                for name, hook in hooks.items()
            },
            butler.credentials.require,
            butler.clock,
        )
        channels[webhook.name] = webhook
    return channels
