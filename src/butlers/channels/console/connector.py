"""The console connector: sends what a person types, and shows the replies, each once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from butlers.channels.console import sender as console
from butlers.domain.clock import Clock, SystemClock
from butlers.domain.errors import AnswerLost, ButlersError, QueueFull
from butlers.wire.client import McpClient
from butlers.wire.codec import encode

POLL_S = 20.0
PATIENCE_S = 15.0
RETRY_S = 0.2


@dataclass(frozen=True, slots=True)
class Reply:
    delivery_id: UUID
    origin: str
    message: str


class ConsoleConnector:
    def __init__(
        self, switchboard: McpClient, messenger: McpClient, clock: Clock | None = None
    ) -> None:
        self._switchboard = switchboard
        self._messenger = messenger
        self._clock = clock or SystemClock()
        self._shown: set[UUID] = set()

    async def send(
        self, text: str, *, event_id: str | None = None, patience_s: float = PATIENCE_S
    ) -> UUID:
        """Hand a message to the Switchboard; it is stored when this returns.

        When the answer is lost on the way nobody knows whether it was stored, so the same event is sent
        again until there is an answer: the Switchboard keeps one of them. So it is when it has too much to
        do for the moment.
        """
        envelope = console.parse(text, self._clock, event_id=event_id)
        envelope.check()
        arguments = encode(envelope)
        try:
            return await self._ingest(arguments)
        except (AnswerLost, QueueFull):
            return await self._ingest_again(arguments, patience_s)

    async def _ingest(self, arguments: dict[str, Any]) -> UUID:
        accepted = await self._switchboard.call("ingest", arguments)
        return UUID(accepted["request_id"])

    async def _ingest_again(self, arguments: dict[str, Any], patience_s: float) -> UUID:
        deadline = asyncio.get_running_loop().time() + patience_s
        while True:
            await asyncio.sleep(RETRY_S)
            try:
                return await self._ingest(arguments)
            except ButlersError as error:
                if not error.retryable or asyncio.get_running_loop().time() > deadline:
                    raise

    async def receive(self, request_id: UUID | None, timeout_s: float) -> list[Reply]:
        """Replies not shown yet, to one request or any; waits up to ``timeout_s`` for the first. That there
        are none is said only by a Messenger that answered."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while True:
            left = max(0.0, deadline - loop.time())
            try:
                fresh = await self._receive(request_id, min(POLL_S, left))
            except ButlersError as error:
                if not error.retryable or loop.time() >= deadline:
                    raise
                await asyncio.sleep(RETRY_S)
            else:
                if fresh or loop.time() >= deadline:
                    return fresh

    async def shown(self, replies: Sequence[Reply]) -> None:
        """Say that these were shown. Before that they come again, so that none is lost on the way."""
        self._shown.update(reply.delivery_id for reply in replies)
        ids = [str(reply.delivery_id) for reply in replies]
        await self._messenger.call("console_shown", {"delivery_ids": ids})

    async def _receive(self, request_id: UUID | None, wait_s: float) -> list[Reply]:
        answer = await self._messenger.call(
            "console_receive",
            {"request_id": str(request_id) if request_id else None, "wait_s": wait_s},
            timeout_s=wait_s + 10,
        )
        found = [
            Reply(UUID(mail["delivery_id"]), mail["origin"], mail["message"])
            for mail in answer["mail"]
        ]
        return [reply for reply in found if reply.delivery_id not in self._shown]
