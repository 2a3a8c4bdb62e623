"""Dead letters: queue items that failed for good. They are kept, listed, replayed, and their senders told.

It makes no difference how an item died (refused, attempts used up, its recipient away for a day, its worker
killed): the notices find it in the table, and tell its sender in the transaction that records the notice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid5

import structlog

from butlers.db.database import Connection, Database
from butlers.domain.delivery import DeliveryRequest
from butlers.domain.faults import kill_point
from butlers.domain.message import CONSOLE, InboxItem, RequestContext, RouteRequest
from butlers.domain.queues import COMMANDS, DELIVERIES, INBOX, MESSENGER, NOTIFY, ROUTES
from butlers.queue import leased_queue as queue
from butlers.queue.leased_queue import DEAD
from butlers.queue.listener import Listener
from butlers.queue.loops import repeat
from butlers.queue.outbox import queue_delivery, queue_reply, queue_report, report_in
from butlers.wire.codec import decode

log = structlog.get_logger()

SCAN_S = 30.0  # between two looks without a wake-up: a killed process wakes nobody
LONGEST_ERROR = 300  # characters of an error in a notice

# Payload types of the queues whose items have a sender that waits for an answer.
PAYLOADS: Mapping[str, Any] = {INBOX: InboxItem, COMMANDS: InboxItem, ROUTES: RouteRequest}
# Queues of outgoing messages. The Messenger reports its own failures (messenger.delivery_notices).
OUTGOING = (NOTIFY, DELIVERIES)
LOST = "A message could not be handed on to the Messenger"
GIVEN_UP = "Your message could not be handled. It is stored, and the owner can retry it."
HOW_TO_RETRY = " It is kept; `butlers dead list` shows it, and it can be tried again."
_NOTICE_IDS = UUID("0d4b8a6e-7d0e-4b55-9a55-0c2a5f1d7c11")  # namespace of the notices' delivery ids


@dataclass(frozen=True, slots=True)
class DeadLetter:
    item_id: UUID
    queue: str
    payload: Any
    error: str
    fence: int  # another one each time the item dies


async def take_unreported(connection: Connection) -> list[DeadLetter]:
    """Mark up to 100 dead letters as reported and return them."""
    rows = await connection.fetch(
        """
        WITH untold AS (
            SELECT id FROM queue_items WHERE state = 'dead' AND NOT told
            ORDER BY id LIMIT 100 FOR UPDATE SKIP LOCKED
        )
        UPDATE queue_items AS item SET told = true FROM untold WHERE item.id = untold.id
        RETURNING item.id, item.queue, item.payload, item.error, item.fence
        """
    )
    return [
        DeadLetter(row["id"], row["queue"], row["payload"], row["error"] or "", row["fence"])
        for row in rows
    ]


async def list_dead(connection: Connection, limit: int, offset: int) -> list[dict[str, Any]]:
    rows = await connection.fetch(
        """
        SELECT id, queue, key, attempts, error, created_at, finished_at
        FROM queue_items WHERE state = 'dead' ORDER BY id DESC LIMIT $1 OFFSET $2
        """,
        limit,
        offset,
    )
    return [dict(row) for row in rows]


async def get_dead(connection: Connection, item_id: UUID) -> dict[str, Any] | None:
    row = await connection.fetchrow(
        "SELECT * FROM queue_items WHERE id = $1 AND state = 'dead'", item_id
    )
    return dict(row) if row else None


async def replay(connection: Connection, item_id: UUID) -> bool:
    """Put a dead letter back in its queue with all its attempts. Return False if it does not exist."""
    name = await connection.fetchval(
        """
        UPDATE queue_items
        SET state = 'ready', attempts = 0, error = NULL, finished_at = NULL, told = false,
            run_after = now(), created_at = now(), waits_since = NULL
        WHERE id = $1 AND state = 'dead' RETURNING queue
        """,
        item_id,
    )
    if name is not None:
        await queue.notify(connection, name)
    return name is not None


async def discard(connection: Connection, item_id: UUID) -> bool:
    """Delete a dead letter. Return False if it does not exist."""
    found = await connection.fetchval(
        "DELETE FROM queue_items WHERE id = $1 AND state = 'dead' RETURNING true", item_id
    )
    return bool(found)


async def discard_deliveries(connection: Connection, delivery_id: UUID) -> int:
    """Delete the dead letters of a delivery that another item continues. Return their number."""
    rows = await connection.fetch(
        """
        DELETE FROM queue_items WHERE state = 'dead' AND queue = 'deliveries'
          AND payload ->> 'delivery_id' = $1 RETURNING 1
        """,
        str(delivery_id),
    )
    return len(rows)


class DeadLetterNotices:
    """Tells the sender of each dead letter that the message was not handled, or the owner if none waits."""

    def __init__(self, butler: str, database: Database, listener: Listener) -> None:
        self._butler = butler
        self._database = database
        self._listener = listener

    async def run(self) -> None:
        died = asyncio.Event()
        with self._listener.wakes(DEAD, died):
            await repeat(self._send_all, "dead letter notices", every_s=SCAN_S, wake=died)

    async def _send_all(self) -> None:
        while await self.send():
            pass

    async def send(self) -> int:
        """Send the notices of one batch and return its size."""
        async with self._database.transaction() as connection:
            letters = await take_unreported(connection)
            for letter in letters:
                log.warning(
                    "dead letter",
                    queue=letter.queue,
                    item=str(letter.item_id),
                    error=letter.error,
                )
                await self._notify(connection, letter)
            if letters:
                kill_point("dead.before_commit")
        if letters:
            kill_point("dead.committed")
        return len(letters)

    async def _notify(self, connection: Connection, letter: DeadLetter) -> None:
        if letter.queue in OUTGOING and self._butler != MESSENGER:
            await self._tell_owner(connection, letter)
        elif letter.queue in PAYLOADS:
            item: InboxItem | RouteRequest | None = _read(PAYLOADS[letter.queue], letter)
            if item is None:
                return
            # The fence: an item that is replayed and dies again gets another notice.
            text = _reply_text(letter, item.request)
            await queue_reply(
                connection, self._butler, item.request, text, letter.fence, failure=True
            )
            if isinstance(item, RouteRequest) and item.report:
                await queue_report(connection, item.request, well=False)

    async def _tell_owner(self, connection: Connection, letter: DeadLetter) -> None:
        """Tell the owner that a notification never left this butler, unless it was such a notice itself.

        A lost report about a part of a message is left to the Switchboard, which gives up waiting for it.
        """
        if report_in(letter.payload):
            return
        lost: DeliveryRequest | None = _read(DeliveryRequest, letter)
        if lost is None or lost.message.startswith(LOST):
            return
        error = _one_line(letter.error)
        message = (
            f"{LOST}: {lost.intent} to {lost.target} on {lost.channel}, from {self._butler}: {error}."
            + HOW_TO_RETRY
        )
        notice_id = uuid5(_NOTICE_IDS, f"{letter.item_id}:{letter.fence}")
        notice = DeliveryRequest.to_owner(notice_id, self._butler, message)
        await queue_delivery(connection, notice)


def _read(kind: Any, letter: DeadLetter) -> Any:
    """Decode a dead letter's payload, or return None: the payload may be what it died of."""
    try:
        return decode(kind, letter.payload)
    except Exception:
        log.exception("a dead letter cannot be read", item=str(letter.item_id))
        return None


def _reply_text(letter: DeadLetter, request: RequestContext) -> str:
    if request.source_channel != CONSOLE:  # only the owner is shown the reason
        return GIVEN_UP
    error = _one_line(letter.error) or "it failed each time"
    return f"Your message could not be handled: {error}.{HOW_TO_RETRY}"


def _one_line(error: str) -> str:
    return " ".join(error.split())[:LONGEST_ERROR]
