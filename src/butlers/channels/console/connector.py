"""The console connector: hands typed messages to the Switchboard and fetches the replies."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from butlers.domain.clock import Clock, SystemClock, uuid7
from butlers.domain.delivery import OWNERS_CONSOLE
from butlers.domain.errors import AnswerLost, ButlersError, QueueFull
from butlers.domain.message import (
    CONSOLE,
    Attachment,
    Control,
    Event,
    InboundEnvelope,
    Payload,
    PolicyTier,
    Sender,
    Source,
)
from butlers.wire.client import McpClient
from butlers.wire.codec import encode_plain

POLL_S = 20.0
PATIENCE_S = 15.0
RETRY_S = 0.2


def parse(
    text: str,
    clock: Clock,
    *,
    event_id: str | None = None,
    endpoint: str = OWNERS_CONSOLE,
    attachments: tuple[Attachment, ...] = (),
) -> InboundEnvelope:
    """Return the envelope of one typed message. Its answer goes to the mailbox of the endpoint."""
    return InboundEnvelope(
        source=Source(CONSOLE, CONSOLE, endpoint),
        event=Event(event_id or str(uuid7()), clock.now()),
        sender=Sender("owner"),
        payload=Payload(text, raw={"text": text}, attachments=attachments),
        control=Control(policy_tier=PolicyTier.INTERACTIVE),
    )


@dataclass(frozen=True, slots=True)
class Reply:
    delivery_id: UUID
    origin: str
    message: str
    request_id: UUID | None = None  # None: no message of the person caused it


class ConsoleConnector:
    def __init__(
        self,
        switchboard: McpClient,
        messenger: McpClient,
        clock: Clock | None = None,
        *,
        endpoint: str = OWNERS_CONSOLE,
    ) -> None:
        self._endpoint = endpoint
        self._switchboard = switchboard
        self._messenger = messenger
        self._clock = clock or SystemClock()
        self._shown: set[UUID] = set()

    async def send(
        self,
        text: str,
        *,
        event_id: str | None = None,
        patience_s: float = PATIENCE_S,
        attachments: tuple[Attachment, ...] = (),
    ) -> UUID:
        """Hand a message to the Switchboard. It is stored when this returns.

        If the answer is lost or the Switchboard's queue is full, the same event is sent again until there
        is an answer. The Switchboard stores one event once.
        """
        envelope = parse(
            text,
            self._clock,
            event_id=event_id,
            endpoint=self._endpoint,
            attachments=attachments,
        )
        envelope.check({CONSOLE})
        arguments = encode_plain(envelope)
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
        """Return replies not shown yet, to one request or to any; wait up to ``timeout_s`` for the first.

        Raises if the Messenger does not answer, so an empty list means that there are none.
        """
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
        """Mark replies as shown. Until then ``receive`` returns them again, so that none is lost."""
        self._shown.update(reply.delivery_id for reply in replies)
        ids = [str(reply.delivery_id) for reply in replies]
        await self._messenger.call("console_shown", {"delivery_ids": ids})

    async def _receive(self, request_id: UUID | None, wait_s: float) -> list[Reply]:
        answer = await self._messenger.call(
            "console_receive",
            {
                "target": self._endpoint,
                "request_id": str(request_id) if request_id else None,
                "wait_s": wait_s,
            },
            timeout_s=wait_s + 10,
        )
        found = [
            Reply(
                UUID(mail["delivery_id"]),
                mail["origin"],
                mail["message"],
                UUID(mail["request_id"]) if mail["request_id"] else None,
            )
            for mail in answer["mail"]
        ]
        return [reply for reply in found if reply.delivery_id not in self._shown]
