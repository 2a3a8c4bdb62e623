"""The telegram module: the Telegram tools for a butler that names it. Only the Messenger keeps them all."""

from __future__ import annotations

from typing import ClassVar

from butlers.channels.telegram.tools import TOOLS
from butlers.modules.base import Module, ModuleConfig, ToolMeta
from butlers.tools.declaration import ToolFunction

SENSITIVE = ToolMeta({"chat_id": True, "text": True}, egress=True)


class TelegramBotConfig(ModuleConfig):
    """``[modules.telegram.bot]``: the bot that the tools use is that of ``[channels.telegram]``."""

    token_env: str = "TELEGRAM_BOT_TOKEN"
    """Name of the stored secret, or of the environment variable, with the bot's token."""


class TelegramModuleConfig(ModuleConfig):
    bot: TelegramBotConfig = TelegramBotConfig()


class TelegramModule(Module):
    name = "telegram"
    config_schema = TelegramModuleConfig
    tools: ClassVar[tuple[ToolFunction, ...]] = TOOLS

    def tool_metadata(self) -> dict[str, ToolMeta]:
        return {
            "telegram_send_message": SENSITIVE,
            "telegram_reply_to_message": SENSITIVE,
            "telegram_react": ToolMeta({"chat_id": True}, egress=True),
        }
