"""Tells whoever sent a message that it could not be handled: a failure is never silent.

However an item died (refused for good, attempts used up, nobody there for a day, its worker killed),
it is found here, and its sender is told in the transaction that notes so.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any
from uuid import UUID, uuid5

import structlog

from butlers.db.database import Connection, Database
from butlers.domain import command
from butlers.domain.delivery import DeliveryRequest
from butlers.domain.errors import DatabaseUnavailable
from butlers.domain.faults import kill_point
from butlers.domain.message import Channel, InboxItem
from butlers.domain.request import RequestContext
from butlers.domain.route import RouteRequest
from butlers.messenger.sender import DELIVERIES
from butlers.queue import dead_letters
from butlers.queue.dead_letters import DeadLetter
from butlers.queue.leased_queue import DEAD
from butlers.queue.listener import Listener
from butlers.queue.outbox import NOTIFY, ended_part, queue_delivery, queue_end, queue_reply
from butlers.switchboard.dispatch import MESSENGER
from butlers.wire.codec import decode

log = structlog.get_logger()

SCAN_S = 30.0  # also without being woken: a queue may be left by a process that could not say so
SHOWN = 300  # characters of an error

# What a queue's items are, for those that somebody waits for an answer to.
SENDERS: Mapping[str, Any] = {
    "inbox": InboxItem,
    command.QUEUE: InboxItem,
    "routes": RouteRequest,
}
# What goes out. The Messenger keeps books of its own, and tells of it itself.
OUTGOING = (NOTIFY, DELIVERIES)
LOST = "A message could not be handed on to the Messenger"
GIVEN_UP = "I could not deal with your message. It is kept, and looked at."
_TOLD = UUID("0d4b8a6e-7d0e-4b55-9a55-0c2a5f1d7c11")  # the name space of what is told so


class Undertaker:
    def __init__(self, butler: str, database: Database, listener: Listener) -> None:
        self._butler = butler
        self._database = database
        self._listener = listener

    async def run(self) -> None:
        died = asyncio.Event()
        with self._listener.wakes(DEAD, died):
            while True:
                died.clear()
                try:
                    while await self.tell():
                        pass
                except DatabaseUnavailable:
                    pass
                except Exception:  # a loop edge: the next failure must be told too
                    log.exception("could not tell of dead letters")
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(SCAN_S):
                        await died.wait()

    async def tell(self) -> int:
        """Tell the senders of some, and say how many that were."""
        async with self._database.transaction() as connection:
            found = await dead_letters.take_untold(connection)
            for letter in found:
                log.warning(
                    "dead letter",
                    queue=letter.queue,
                    item=str(letter.item_id),
                    error=letter.error,
                )
                if letter.queue in OUTGOING and self._butler != MESSENGER:
                    await self._tell_owner(connection, letter)
                elif letter.queue in SENDERS and (item := _item(letter)) is not None:
                    words = _words(letter, item.request)
                    # Tried again and dead again is another failure, and told again.
                    await queue_reply(connection, self._butler, item.request, words, letter.fence)
                    if isinstance(item, RouteRequest) and item.report:
                        await queue_end(connection, item.request, well=False)
            if found:
                kill_point("dead.before_commit")
        if found:
            kill_point("dead.committed")
        return len(found)

    async def _tell_owner(self, connection: Connection, letter: DeadLetter) -> None:
        """That something never left the house; but not that this word itself did not. Of a part that waits
        for a report the Switchboard tells when it gives up waiting."""
        if ended_part(letter.payload):
            return
        try:
            lost = decode(DeliveryRequest, letter.payload)
        except Exception:  # as in _item
            log.exception("a dead letter can not be read", item=str(letter.item_id))
            return
        if lost.message.startswith(LOST):
            return
        why = " ".join(letter.error.split())[:SHOWN]
        message = (
            f"{LOST}: {lost.intent} to {lost.target} on {lost.channel}, from {self._butler}: {why}."
            " It is kept; `butlers dead list` shows it, and it can be tried again."
        )
        told = DeliveryRequest.to_owner(
            uuid5(_TOLD, f"{letter.item_id}:{letter.fence}"), self._butler, message
        )
        await queue_delivery(connection, told)


def _item(letter: DeadLetter) -> InboxItem | RouteRequest | None:
    try:
        item: InboxItem | RouteRequest = decode(SENDERS[letter.queue], letter.payload)
    except Exception:  # what it carries may be the very reason that it died
        log.exception("a dead letter can not be read", item=str(letter.item_id))
        return None
    return item


def _words(letter: DeadLetter, request: RequestContext) -> str:
    if request.source_channel != Channel.CONSOLE:  # the reason is the owner's to know
        return GIVEN_UP
    error = " ".join(letter.error.split())[:SHOWN]
    return (
        f"I could not deal with your message: {error or 'it failed each time'}."
        " It is kept; `butlers dead list` shows it, and it can be tried again."
    )
