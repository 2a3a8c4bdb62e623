"""The Telegram channel: its registration and its doctor check."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence

from butlers.channels.base import (
    Channel,
    ChannelCheck,
    ChannelSender,
    InboundContext,
    OutboundContext,
    RequestHandler,
)
from butlers.channels.telegram import tools
from butlers.channels.telegram.config import TelegramInbound, TelegramOutbound
from butlers.channels.telegram.connector import TelegramWebhook, run_polling
from butlers.channels.telegram.parser import TELEGRAM
from butlers.channels.telegram.sender import TelegramSender


class TelegramChannel(Channel):
    name = TELEGRAM
    shows_reactions = True
    outbound_config = TelegramOutbound
    inbound_config = TelegramInbound
    tools = tools.TOOLS

    def sender(self, config: TelegramOutbound, context: OutboundContext) -> ChannelSender:
        return TelegramSender(config.token, context.secret, context.clock, api_url=config.api_url)

    def routes(
        self, config: TelegramInbound, context: InboundContext
    ) -> Mapping[str, RequestHandler]:
        if config.webhook_url is None:
            return {}
        return {"/telegram": TelegramWebhook(config, context).receive}

    async def run_connector(self, config: TelegramInbound, context: InboundContext) -> None:
        for user in config.owners:
            await context.set_owner_address(TELEGRAM, str(user), True)
        if config.webhook_url is None:
            await run_polling(config, context)
        else:
            await TelegramWebhook(config, context).run()

    def check(
        self,
        outbound: TelegramOutbound | None,
        inbound: TelegramInbound | None,
        secrets: Collection[str] | None,
    ) -> Sequence[ChannelCheck]:
        if outbound is None and inbound is None:
            return [ChannelCheck(TELEGRAM, "absent", "not connected", "`butlers connect telegram`")]
        found = []
        if outbound is None or inbound is None:
            side = "sends" if inbound is None else "receives"
            detail = f"it only {side} messages"
            found.append(ChannelCheck(TELEGRAM, "broken", detail, "`butlers connect telegram`"))
        if inbound is not None and not inbound.owners:
            detail = "no chat is paired, so you are a stranger to it"
            found.append(ChannelCheck(TELEGRAM, "broken", detail, "`butlers connect telegram`"))
        names = {one.token for one in (outbound, inbound) if one is not None}
        if inbound is not None and inbound.webhook_secret:
            names.add(inbound.webhook_secret)
        return [*found, *(_check_secret(name, secrets) for name in sorted(names))]


def _check_secret(name: str, stored: Collection[str] | None) -> ChannelCheck:
    if stored is None:
        return ChannelCheck(TELEGRAM, "ok", f"connected, secret {name} not checked")
    if name in stored:
        return ChannelCheck(TELEGRAM, "ok", f"connected, secret {name} is stored")
    hint = f"`butlers secrets set {shlex.quote(name)}`"
    return ChannelCheck(TELEGRAM, "broken", f"the secret {name} is not stored", hint)


CHANNEL = TelegramChannel()
