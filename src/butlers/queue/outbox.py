"""The outbox of a butler: notifications and reports, queued with their cause, handed to the Switchboard.

A report says how a part of a split message ended, for another part that waits for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

from butlers.db.database import Connection
from butlers.domain.clock import uuid7
from butlers.domain.delivery import OWNERS_CONSOLE, DeliveryRequest, Intent, lane_to
from butlers.domain.faults import kill_point
from butlers.domain.message import CONSOLE, RequestContext, joined
from butlers.domain.queues import NOTIFY, SWITCHBOARD
from butlers.domain.redaction import redactor
from butlers.domain.trace import current_trace
from butlers.queue import leased_queue as queue
from butlers.queue.leased_queue import Lease
from butlers.wire.client import Peers
from butlers.wire.codec import decode, encode

_ENDED = "ended"  # key of a report's payload


async def queue_delivery(connection: Connection, delivery: DeliveryRequest) -> UUID:
    """Queue a notification, in the transaction of its cause. Return its delivery id.

    Everything that leaves passes here, and known secrets in it are masked.
    """
    delivery.check()
    delivery = replace(delivery, message=redactor.scrub(delivery.message))
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
    failure: bool = False,
) -> UUID:
    """Queue an answer to the sender of a request: a text, or an emoji on the message itself.

    ``failure``: it says that the request could not be fulfilled.
    """
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
        failure=failure,
    )
    return await queue_delivery(connection, delivery)


async def queue_report(connection: Connection, request: RequestContext, *, well: bool) -> None:
    """Queue a report that a part of a message has ended, well or not.

    It goes in the lane of the replies to the sender: the part that waits must not answer before this one.
    A replay that ends differently is another report.
    """
    report = {"request_id": str(request.request_id), "well": well}
    key = joined(_ENDED, str(request.request_id), str(well))
    lane = lane_to(request.source_channel, request.source_endpoint_identity)
    await queue.enqueue(connection, NOTIFY, key, {_ENDED: report}, lane=lane)


def recipient_or_owner(channel: str | None, recipient: str | None) -> tuple[str, str]:
    """Return the channel and target of a new message; the default is the owner's console."""
    return channel or CONSOLE, recipient or OWNERS_CONSOLE


def addresses_sender(request: RequestContext, arguments: Mapping[str, Any]) -> bool:
    """Return whether the arguments of a ``notify`` call address the sender of the request."""
    if arguments.get("intent", Intent.SEND) != Intent.SEND:
        return True
    address = recipient_or_owner(arguments.get("channel"), arguments.get("recipient"))
    return address == (request.source_channel, request.source_endpoint_identity)


def report_in(payload: Any) -> dict[str, Any] | None:
    """Return the report in an item of this queue, or None if the item is a notification."""
    return payload.get(_ENDED) if isinstance(payload, dict) else None


class Outbox:
    def __init__(self, peers: Peers, switchboard_url: str) -> None:
        self._peers = peers
        self._url = switchboard_url

    async def hand_over(self, lease: Lease) -> Any:
        if ended := report_in(lease.payload):
            answer = await self._ask("route_ended", ended)
            kill_point("ended.handed_over")
            return answer
        delivery = decode(DeliveryRequest, lease.payload)
        return await self._ask("deliver", {"delivery": encode(delivery)})

    async def _ask(self, tool: str, arguments: dict[str, Any]) -> Any:
        return await self._peers.call(SWITCHBOARD, self._url, tool, arguments)
