"""Pairing of the owner's Telegram account with a six-digit code that only the terminal shows."""

from __future__ import annotations

import hmac
import secrets
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from butlers.channels.telegram.api import BotApi
from butlers.channels.telegram.parser import TelegramMessage, parse_update, update_id
from butlers.domain.clock import Clock
from butlers.domain.errors import ButlersError

CODE_DIGITS = 6
GUESSES_OF_ONE = 5
GUESSES_OF_ALL = 20
POLL_S = 10
WELCOME = "This chat is paired with your Butlers. Write here whenever you need them."


class PairingFailed(ButlersError):
    """No chat was paired."""

    code = "pairing_failed"
    default_hint = "run `butlers connect telegram` again; what is done already is kept"


@dataclass(frozen=True, slots=True)
class PairedChat:
    user: int
    chat: int
    name: str
    message_id: str  # of the welcome message: the proof that the bot can answer


@dataclass
class Pairing:
    """Waits for the code. A few wrong guesses end it, so that nobody finds the code by trying."""

    api: BotApi
    clock: Clock
    code: str = field(default_factory=lambda: f"{secrets.randbelow(10**CODE_DIGITS):06}")
    _guesses: Counter[str] = field(default_factory=Counter)

    async def wait(self, seconds: float) -> PairedChat:
        """Wait for a message with the code, answer it, and return its sender."""
        deadline, offset = self.clock.monotonic() + seconds, 0
        while (left := deadline - self.clock.monotonic()) > 0:
            arguments = {
                "offset": offset,
                "timeout": int(min(POLL_S, max(left, 0))),
                "allowed_updates": ["message"],
            }
            for update in await self.api.call("getUpdates", arguments, wait_s=POLL_S):
                offset = (update_id(update) or offset) + 1
                if (found := self._sender_of_code(update)) is not None:
                    await self.api.call("getUpdates", {"offset": offset, "timeout": 0})
                    return await self._welcome(found)
        raise PairingFailed(f"the code did not arrive within {seconds:.0f} seconds")

    def _sender_of_code(self, update: Any) -> TelegramMessage | None:
        parsed = parse_update(update)
        if not isinstance(parsed, TelegramMessage):
            return None
        envelope = parsed.envelope
        sender, raw = envelope.sender.identity, envelope.payload.raw or {}
        words = envelope.payload.normalized_text.removeprefix("/start").strip()
        is_guess = len(words) == CODE_DIGITS and words.isascii() and words.isdecimal()
        private = raw["chat"] == "private"
        if not is_guess or not private or self._guesses[sender] >= GUESSES_OF_ONE:
            return None
        if hmac.compare_digest(words, self.code):
            return parsed
        self._guesses[sender] += 1
        if self._guesses.total() >= GUESSES_OF_ALL:
            raise PairingFailed(f"{GUESSES_OF_ALL} wrong codes were sent to the bot")
        return None

    async def _welcome(self, message: TelegramMessage) -> PairedChat:
        chat = int(message.envelope.source.endpoint_identity)
        sent = await self.api.call("sendMessage", {"chat_id": chat, "text": WELCOME})
        raw = message.envelope.payload.raw or {}
        user = int(message.envelope.sender.identity)
        return PairedChat(user, chat, raw["name"], f"{chat}:{sent['message_id']}")
