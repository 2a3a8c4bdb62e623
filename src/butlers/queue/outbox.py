"""The way out of every butler: what it has to say is queued with its cause and handed to the Switchboard.

That is notifications, and how a part of a message ended where another part waits for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

from butlers.db.database import Connection
from butlers.domain.delivery import OWNERS_CONSOLE, DeliveryRequest, Intent, lane_to
from butlers.domain.faults import kill_point
from butlers.domain.ids import uuid7
from butlers.domain.message import Channel
from butlers.domain.queues import NOTIFY, SWITCHBOARD
from butlers.domain.request import RequestContext, joined
from butlers.domain.trace import current_trace
from butlers.queue import leased_queue as queue
from butlers.queue.leased_queue import Lease
from butlers.wire.codec import decode, encode
from butlers.wire.peers import Peers

_ENDED = "ended"  # marks a report among the notifications


async def queue_delivery(connection: Connection, delivery: DeliveryRequest) -> UUID:
    """Put a notification on its way, in the transaction of what caused it."""
    delivery.check()
    if delivery.trace_id is None and (trace := current_trace()):
        delivery = replace(delivery, trace_id=trace.trace_id)
    key = delivery.idempotency_key
    await queue.enqueue(connection, NOTIFY, key, encode(delivery), lane=delivery.lane)
    return delivery.delivery_id


async def queue_reply(
    connection: Connection,
    origin: str,
    request: RequestContext,
    message: str,
    ordinal: int = 0,
    *,
    emoji: str | None = None,
    outside_links: tuple[str, ...] = (),
) -> UUID:
    """Answer a request where it came from: with words, or with an emoji on the message itself."""
    delivery = DeliveryRequest(
        delivery_id=uuid7(),
        origin=origin,
        intent=Intent.REPLY if emoji is None else Intent.REACT,
        channel=request.source_channel,
        target=request.source_endpoint_identity,
        message=message,
        request_id=request.request_id,
        thread=request.source_thread_identity,
        ordinal=ordinal,
        emoji=emoji,
        source_event=request.source_event_identity,
        outside_links=outside_links,
    )
    return await queue_delivery(connection, delivery)


async def queue_end(connection: Connection, request: RequestContext, *, well: bool) -> None:
    """Behind all that was said to the sender: the part that waits for this one must not answer first.

    A later word (a replay that went well after all) is another report.
    """
    report = {"request_id": str(request.request_id), "well": well}
    key = joined(_ENDED, str(request.request_id), str(well))
    lane = lane_to(request.source_channel, request.source_endpoint_identity)
    await queue.enqueue(connection, NOTIFY, key, {_ENDED: report}, lane=lane)


def place(channel: str | None, recipient: str | None) -> tuple[str, str]:
    """Where a new message goes: to the owner's console, unless somebody else is named."""
    return channel or Channel.CONSOLE, recipient or OWNERS_CONSOLE


def answers(request: RequestContext, notified: Mapping[str, Any]) -> bool:
    """Whether a notification, by its arguments, went where the request came from. What was said to somebody
    else is no answer to it."""
    if notified.get("intent", Intent.SEND) != Intent.SEND:
        return True
    there = place(notified.get("channel"), notified.get("recipient"))
    return there == (request.source_channel, request.source_endpoint_identity)


def ended_part(payload: Any) -> dict[str, Any] | None:
    """The report, where an item of this queue is one and not a notification."""
    return payload.get(_ENDED) if isinstance(payload, dict) else None


class Outbox:
    def __init__(self, peers: Peers, switchboard_url: str) -> None:
        self._peers = peers
        self._url = switchboard_url

    async def hand_over(self, lease: Lease) -> Any:
        if ended := ended_part(lease.payload):
            answer = await self._ask("route_ended", ended)
            kill_point("ended.handed_over")
            return answer
        delivery = decode(DeliveryRequest, lease.payload)
        return await self._ask("deliver", {"delivery": encode(delivery)})

    async def _ask(self, tool: str, arguments: dict[str, Any]) -> Any:
        return await self._peers.call(SWITCHBOARD, self._url, tool, arguments)
