"""Forgetting in the other butlers: one queue item, which the Switchboard passes on to all of them."""

from __future__ import annotations

from typing import Any

from butlers.db.database import Connection
from butlers.domain.clock import uuid7
from butlers.domain.queues import SWITCHBOARD
from butlers.modules.memory.store.forgetting import Forgotten
from butlers.queue import leased_queue as queue
from butlers.queue.leased_queue import Lease
from butlers.wire.client import Peers

QUEUE = "memory_forget"


async def request_forgetting_elsewhere(connection: Connection, gone: Forgotten) -> None:
    """Enqueue the hand-over with the transaction that forgets."""
    if not gone.hashes and not gone.requests:
        return
    payload = {"hashes": list(gone.hashes), "requests": [str(each) for each in gone.requests]}
    await queue.enqueue(connection, QUEUE, f"forget:{uuid7()}", payload)


class ForgetPropagation:
    """Handler of the queue items that make other butlers forget, through the Switchboard."""

    def __init__(self, peers: Peers, switchboard_url: str | None) -> None:
        self._peers = peers
        self._url = switchboard_url

    async def process(self, lease: Lease) -> Any:
        if self._url is None:
            return {"told": {}}  # this butler stands alone
        return await self._peers.call(SWITCHBOARD, self._url, "peer_forget", lease.payload)
