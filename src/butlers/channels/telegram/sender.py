"""Sends deliveries through the Bot API: split into parts, with buttons, as replies or as reactions.

The receipt is ``<chat>:<message>`` of the last part. Telegram has no idempotency key, so a delivery whose
answer is lost stays uncertain and is not sent again by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from butlers.channels.base import ReadSecret
from butlers.channels.telegram.api import API_URL, BotApi, ChatMigrated
from butlers.channels.telegram.parser import TELEGRAM
from butlers.channels.telegram.text import FormattedText, from_markdown, split
from butlers.domain.clock import Clock
from butlers.domain.delivery import DeliveryReceipt, DeliveryRequest, Intent
from butlers.domain.errors import ChannelBusy, ChannelError, DeliveryRefused, DeliveryUncertain

MAX_PARTS = 20
LONGEST_WAIT_S = 30.0  # between two parts, if Telegram asks for a pause
# The emoji that bots may react with.
_REACTIONS = (
    "👍 👎 ❤ 🔥 🥰 👏 😁 🤔 🤯 😱 🤬 😢 🎉 🤩 🤮 💩 🙏 👌 🕊 🤡 🥱 🥴 😍 🐳 ❤\u200d🔥 🌚 🌭",
    "💯 🤣 ⚡ 🍌 🏆 💔 🤨 😐 🍓 🍾 💋 🖕 😈 😴 😭 🤓 👻 👨\u200d💻 👀 🎃 🙈 😇 😨 🤝 ✍ 🤗",
    "🫡 🎅 🎄 ☃ 💅 🤪 🗿 🆒 💘 🙉 🦄 😘 💊 🙊 😎 👾",
    "🤷\u200d♂ 🤷 🤷\u200d♀ 😡",
)
REACTIONS = frozenset(emoji for line in _REACTIONS for emoji in line.split())
_VARIATION = "\ufe0f"  # asks for the colored form of an emoji; Telegram's list is without it


class TelegramSender:
    name = TELEGRAM

    def __init__(
        self, token: str, secret: ReadSecret, clock: Clock, *, api_url: str = API_URL
    ) -> None:
        self._token = token  # name of the secret
        self._secret = secret
        self._clock = clock
        self._api_url = api_url
        self._moved: dict[int, int] = {}  # groups that have become supergroups

    def idempotent(self, target: str) -> bool:
        return False

    def line(self, target: str) -> str | None:
        return TELEGRAM

    async def send(self, delivery: DeliveryRequest) -> DeliveryReceipt:
        chat, topic = read_address(delivery.target)
        api = BotApi(await self._secret(self._token), self._api_url)
        chat = self._moved.get(chat, chat)
        try:
            message_id = await self._send_to(api, chat, topic, delivery)
        except ChatMigrated as moved:
            self._moved[chat] = moved.new_id
            message_id = await self._send_to(api, moved.new_id, topic, delivery)
        return DeliveryReceipt(delivery.delivery_id, self.name, message_id, self._clock.now())

    async def _send_to(
        self, api: BotApi, chat: int, topic: int | None, delivery: DeliveryRequest
    ) -> str:
        answered = _message_number(delivery.source_event)
        if delivery.intent is Intent.REACT and answered is not None:
            emoji = (delivery.emoji or "").replace(_VARIATION, "")
            if emoji in REACTIONS:
                await set_reaction(api, chat, answered, emoji)
                return f"{chat}:{answered}:{emoji}"
        text = delivery.emoji or delivery.message
        common: dict[str, Any] = {
            "chat_id": chat,
            "link_preview_options": {"is_disabled": True},
        }
        if topic is not None:
            common["message_thread_id"] = topic
        if answered is not None:
            common["reply_parameters"] = {
                "message_id": answered,
                "allow_sending_without_reply": True,
            }
        return await _send_parts(api, common, _parts(text), _keyboard(delivery))


async def set_reaction(api: BotApi, chat: int, message: int, emoji: str | None) -> None:
    """Set the bot's reaction to a message, or remove it."""
    reaction = [{"type": "emoji", "emoji": emoji}] if emoji else []
    arguments = {"chat_id": chat, "message_id": message, "reaction": reaction}
    await api.call("setMessageReaction", arguments)


def read_address(target: str) -> tuple[int, int | None]:
    """Return the chat and the topic of an address such as "4711" or "-100123/7"."""
    chat, _, topic = target.strip().partition("/")
    try:
        return int(chat), int(topic) if topic else None
    except ValueError:
        raise DeliveryRefused(
            f"{target[:80]!r} is not a Telegram chat", hint="use the number of a chat"
        ) from None


def _parts(text: str) -> list[FormattedText]:
    parts = split(from_markdown(text))
    if not parts:
        raise DeliveryRefused("the message has no text that Telegram shows")
    if len(parts) > MAX_PARTS:
        raise DeliveryRefused(
            f"the message is too long for Telegram: {len(parts)} parts",
            hint=f"at most {MAX_PARTS} parts of 4,096 characters are sent",
        )
    return parts


async def _send_parts(
    api: BotApi,
    common: dict[str, Any],
    parts: Sequence[FormattedText],
    keyboard: dict[str, Any] | None,
) -> str:
    receipt = ""
    for number, part in enumerate(parts, start=1):
        arguments = {
            **common,
            "text": part.text,
            "entities": [entity.as_json() for entity in part.entities],
        }
        if number == len(parts) and keyboard:
            arguments["reply_markup"] = keyboard
        try:
            sent = await _send_part(api, arguments, first=number == 1)
        except ChannelError as error:
            if number == 1:
                raise
            done = f"{number - 1} of {len(parts)} parts were sent, then: {error.message}"
            raise DeliveryUncertain(done, response=error.response) from error
        receipt = f"{sent['chat']['id']}:{sent['message_id']}"
        common.pop("reply_parameters", None)  # only the first part is a reply
    return receipt


async def _send_part(api: BotApi, arguments: dict[str, Any], *, first: bool) -> Any:
    """Send one part. Parts after the first wait for a short pause that Telegram asks for."""
    try:
        return await api.call("sendMessage", arguments)
    except ChannelBusy as error:
        if first or error.pause_s > LONGEST_WAIT_S:
            raise
        await asyncio.sleep(error.pause_s)
        return await api.call("sendMessage", arguments)


def _keyboard(delivery: DeliveryRequest) -> dict[str, Any] | None:
    if not delivery.actions:
        return None
    buttons = [{"text": action.label, "callback_data": action.value} for action in delivery.actions]
    return {"inline_keyboard": [buttons[start : start + 2] for start in range(0, len(buttons), 2)]}


def _message_number(event_id: str | None) -> int | None:
    """Return the number of the message in an id of ours, such as 4711:12 or 4711:12:edit:1700000000."""
    parts = (event_id or "").split(":")
    return int(parts[1]) if len(parts) > 1 and parts[1].isdecimal() else None
