"""Configuration of the Telegram channel."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from butlers.channels.base import ChannelConfig
from butlers.channels.telegram.api import API_URL
from butlers.config.document import refuse
from butlers.config.values import Text, WebUrl

TOKEN = "TELEGRAM_BOT_TOKEN"  # name of the stored secret, unless another is configured


class TelegramOutbound(ChannelConfig):
    """``[channels.telegram]``: the bot that messages are sent by."""

    token: Text = TOKEN
    """Name of the stored secret that holds the bot's token."""
    api_url: WebUrl = API_URL
    """Address of the Bot API, if you run a server of your own."""


class TelegramInbound(TelegramOutbound):
    """``[connectors.telegram]``: the bot that people write to."""

    owners: tuple[int, ...] = ()
    """Telegram user ids that are you. `butlers connect telegram` finds yours."""
    progress: bool = True
    """Show that a message was seen, is worked on, and is done: by reactions and "typing"."""
    poll_s: Annotated[int, Field(ge=0, le=50)] = 25
    """Seconds that Telegram waits for a message before it answers a poll."""
    webhook_url: WebUrl | None = None
    """Public HTTPS address that Telegram posts to, forwarded to the Switchboard's `/telegram`.
    Default: poll."""
    webhook_secret: Text | None = None
    """Name of the stored secret that Telegram sends along; needed with `webhook_url`."""

    @model_validator(mode="after")
    def _webhook_has_a_secret(self) -> Self:
        if (self.webhook_url is None) != (self.webhook_secret is None):
            raise refuse(
                "webhook_url and webhook_secret belong together",
                hint="store a secret with `butlers secrets set` and name it",
            )
        return self
