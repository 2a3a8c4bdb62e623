"""How a part of a message ended, said to the Switchboard where another part waits for it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from butlers.routing.notify import SWITCHBOARD
from butlers.routing.peers import Peers
from butlers.store import queue
from butlers.store.database import Connection
from butlers.store.queue import Lease

REPORTS = "reports"


async def queue_report(connection: Connection, request_id: UUID, *, well: bool) -> None:
    """A later word (a replay that went well after all) is another report."""
    payload = {"request_id": str(request_id), "well": well}
    await queue.enqueue(connection, REPORTS, f"{request_id}:{well}", payload)


class Reporter:
    def __init__(self, peers: Peers, switchboard_url: str) -> None:
        self._peers = peers
        self._url = switchboard_url

    async def hand_over(self, lease: Lease) -> Any:
        return await self._peers.call(SWITCHBOARD, self._url, "route_ended", lease.payload)
