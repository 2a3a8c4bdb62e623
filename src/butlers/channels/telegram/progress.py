"""Progress signs on a Telegram message: seen, working, done or failed.

They are no deliveries: a sign that cannot be shown is not tried again, and nothing depends on it.
"""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import structlog

from butlers.channels.base import RequestProgress
from butlers.channels.telegram.api import BotApi
from butlers.channels.telegram.sender import set_reaction
from butlers.domain.errors import ButlersError
from butlers.domain.message import InboundEnvelope

log = structlog.get_logger()

SEEN, DONE, FAILED = "👀", "👍", "😢"
TYPING_EVERY_S = 4.0  # Telegram shows "typing" for five seconds
LONGEST_S = 600.0
MAX_SIGNS = 100  # messages with signs at the same time


class ProgressSigns:
    def __init__(self, progress: RequestProgress) -> None:
        self._progress = progress
        self._tasks: set[asyncio.Task[None]] = set()

    def show(self, api: BotApi, envelope: InboundEnvelope, answer: dict[str, Any]) -> None:
        """Begin the signs of a message that was accepted for an answer, and for no other."""
        if answer["status"] != "accepted" or answer["duplicate"] or len(self._tasks) >= MAX_SIGNS:
            return
        task = asyncio.create_task(self._accompany(api, envelope, UUID(answer["request_id"])))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def confirm_button(
        self, api: BotApi, envelope: InboundEnvelope, query: str, answer: dict[str, Any]
    ) -> None:
        """Tell the person that the press arrived, and remove the buttons if it counts."""
        task = asyncio.create_task(_confirm(api, envelope, query, answer["status"] == "accepted"))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accompany(self, api: BotApi, envelope: InboundEnvelope, request_id: UUID) -> None:
        chat, message = _place(envelope)
        typing = asyncio.create_task(_type(api, envelope))
        try:
            await _quietly(set_reaction(api, chat, message, SEEN))
            async with asyncio.timeout(LONGEST_S):
                well = await self._progress.answered_well(request_id)
            await _quietly(set_reaction(api, chat, message, DONE if well else FAILED))
        except TimeoutError:
            await _quietly(set_reaction(api, chat, message, None))
        finally:
            typing.cancel()


async def _type(api: BotApi, envelope: InboundEnvelope) -> None:
    chat, _, topic = envelope.source.endpoint_identity.partition("/")
    arguments: dict[str, Any] = {"chat_id": int(chat), "action": "typing"}
    if topic:
        arguments["message_thread_id"] = int(topic)
    while True:
        await _quietly(api.call("sendChatAction", arguments))
        await asyncio.sleep(TYPING_EVERY_S)


async def _confirm(api: BotApi, envelope: InboundEnvelope, query: str, counts: bool) -> None:
    chat, message = _place(envelope)
    text = "Received." if counts else "Only the owner may press this."
    await _quietly(api.call("answerCallbackQuery", {"callback_query_id": query, "text": text}))
    if counts:
        where = {"chat_id": chat, "message_id": message}
        await _quietly(api.call("editMessageReplyMarkup", where))


def _place(envelope: InboundEnvelope) -> tuple[int, int]:
    chat, message = envelope.event.external_event_id.split(":")[:2]
    return int(chat), int(message)


async def _quietly(call: Any) -> None:
    try:
        await call
    except ButlersError as error:
        log.debug("progress sign not shown", error=error.message)
