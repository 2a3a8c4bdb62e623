"""The Switchboard's two roads: messages in to the butler that answers, deliveries out to the Messenger.

Each handler works on a leased item. The other side stores under the request's or delivery's own key before
it acknowledges, so asking it twice is the same as asking once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any

from butlers.domain.clock import Clock
from butlers.domain.delivery import DeliveryRequest
from butlers.domain.errors import PeerUnavailable
from butlers.domain.message import InboxItem
from butlers.domain.registration import Registration
from butlers.domain.route import FALLBACK_RULE, RouteDecision, RouteRequest
from butlers.routing.notify import SWITCHBOARD, queue_reply
from butlers.routing.peers import Peers
from butlers.store import inbox, registry
from butlers.store.database import Database
from butlers.store.queue import Lease
from butlers.wire.codec import decode, encode
from butlers.wire.telemetry import route_span

MESSENGER = "messenger"
PATIENCE = timedelta(minutes=1)
WAITING = "Who has to answer this is away. Your message is kept, and answered when they are back."

Triage = Callable[[str, Iterable[Registration]], RouteDecision]
# Asked where triage has no better answer than the fallback.
Classify = Callable[[InboxItem, Sequence[Registration]], Awaitable[RouteDecision | None]]


class Dispatch:
    def __init__(
        self, database: Database, peers: Peers, clock: Clock, triage: Triage, classify: Classify
    ) -> None:
        self._database = database
        self._peers = peers
        self._clock = clock
        self._triage = triage
        self._classify = classify

    async def route_message(self, lease: Lease) -> Any:
        """Decide where a message goes, once, and hand it over."""
        item = decode(InboxItem, lease.payload)
        decision = await self._decide(item)
        route = RouteRequest(item.request, decision.target, item.text, decision)
        with route_span(item.request.request_id, decision.target, decision.rule):
            try:
                target = await self._find(decision.target)
                arguments = {"route": encode(route)}
                await self._peers.call(target.name, target.url, "route.execute", arguments)
            except PeerUnavailable:
                await self._tell_of_waiting(item)
                raise
        async with self._database.transaction() as connection:
            await inbox.mark_routed(connection, item.request.request_id, self._clock.now())
        return {"target": decision.target}

    async def forward_delivery(self, lease: Lease) -> Any:
        """Hand a delivery to the Messenger, the only way out."""
        messenger = await self._find(MESSENGER)
        delivery = decode(DeliveryRequest, lease.payload)
        return await self._peers.call(
            messenger.name, messenger.url, "deliver", {"delivery": encode(delivery)}
        )

    async def _tell_of_waiting(self, item: InboxItem) -> None:
        """Once, when it takes longer than a person would think. The same words are one delivery."""
        if self._clock.now() - item.request.received_at > PATIENCE:
            async with self._database.transaction() as connection:
                await queue_reply(connection, SWITCHBOARD, item.request, WAITING)

    async def _decide(self, item: InboxItem) -> RouteDecision:
        request_id = item.request.request_id
        async with self._database.transaction() as connection:
            if known := await inbox.read_decision(connection, request_id):
                return known
            registrations = await registry.list_registrations(connection)
        decision = self._triage(item.text, registrations)
        if decision.rule == FALLBACK_RULE:
            decision = await self._classify(item, registrations) or decision
        async with self._database.transaction() as connection:
            return await inbox.store_decision(connection, request_id, decision)

    async def _find(self, name: str) -> Registration:
        async with self._database.transaction() as connection:
            found = await registry.find_registration(connection, name)
        if found is None:
            raise PeerUnavailable(f"{name} has not registered with the Switchboard")
        return found
