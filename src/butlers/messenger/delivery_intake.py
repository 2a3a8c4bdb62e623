"""Accepts deliveries: stores and queues them, or parks them until the owner approves."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

from butlers.db.database import Connection
from butlers.domain.clock import uuid7
from butlers.domain.delivery import OWNERS_CONSOLE, DeliveryRequest, DeliveryState, Intent
from butlers.domain.errors import StateConflict
from butlers.domain.message import CONSOLE
from butlers.messenger import approvals, deliveries
from butlers.messenger.approvals import ApprovalReason, PendingAction
from butlers.messenger.policy import DeliveryPolicy
from butlers.queue import dead_letters

APPROVAL_TTL = timedelta(hours=72)
EXCERPT_LENGTH = 120


async def accept_delivery(
    connection: Connection, delivery: DeliveryRequest, policy: DeliveryPolicy, now: datetime
) -> UUID:
    """Store a delivery before anything is sent. One idempotency key is one delivery."""
    delivery.check()
    reasons = await _approval_reasons(connection, delivery, policy)
    delivery_id = await deliveries.store_delivery(
        connection,
        delivery,
        accepted_at=now,
        # The time to live includes the time on the way here.
        expires_at=policy.deadline(delivery.intent, min(delivery.made_at or now, now)),
        state=DeliveryState.PARKED if reasons else DeliveryState.ACCEPTED,
        reason=", ".join(reasons) or None,
    )
    if delivery_id != delivery.delivery_id:
        return delivery_id
    if delivery.intent is not Intent.SEND:
        # It answers a message, so the recipient has written before.
        await approvals.remember_recipient(
            connection, delivery.channel, delivery.target, "wrote", now
        )
    if reasons:
        await approvals.store_action(connection, _question(delivery, reasons, now))
    else:
        await deliveries.enqueue(connection, delivery, str(delivery_id))
    return delivery_id


async def accept_notice(
    connection: Connection, butler: str, message: str, policy: DeliveryPolicy, now: datetime
) -> None:
    """Queue a message of the Messenger itself to the owner. Its own failure is not reported again."""
    notice = DeliveryRequest.to_owner(uuid7(), butler, message)
    await deliveries.store_delivery(
        connection,
        notice,
        accepted_at=now,
        expires_at=policy.deadline(notice.intent, now),
        told_at=now,
    )
    await deliveries.enqueue(connection, notice, str(notice.delivery_id))


async def resend(
    connection: Connection, delivery_id: UUID, policy: DeliveryPolicy, now: datetime
) -> None:
    """Queue a delivery again that did not arrive, or may not have. Only the owner decides that."""
    record = await deliveries.lock_delivery(connection, delivery_id)
    if not record.state.may_resend:
        raise StateConflict(
            f"the delivery is {record.state}",
            hint="only a delivery that has ended without being delivered can be sent again",
        )
    until = policy.deadline(record.delivery.intent, now)
    await deliveries.accept_again(connection, delivery_id, "sent again by the owner", until)
    await dead_letters.discard_deliveries(connection, delivery_id)
    await deliveries.enqueue(connection, record.delivery, f"{delivery_id}:{uuid7()}")


async def _approval_reasons(
    connection: Connection, delivery: DeliveryRequest, policy: DeliveryPolicy
) -> list[ApprovalReason]:
    """Return the reasons to ask the owner first.

    None for the owner's own console, which reaches nobody else, and for an unknown channel, which is
    refused later. The recipient of a reply is not new, but links that another person put into the
    conversation could leak its content.
    """
    own = delivery.channel == CONSOLE and delivery.target == OWNERS_CONSOLE
    if own or delivery.channel not in policy.channels:
        return []
    links = [ApprovalReason.OUTSIDE_LINKS] if delivery.outside_links else []
    if delivery.intent is not Intent.SEND:
        return links
    known = await approvals.is_known_recipient(connection, delivery.channel, delivery.target)
    return links if known else [ApprovalReason.NEW_RECIPIENT, *links]


def _question(
    delivery: DeliveryRequest, reasons: list[ApprovalReason], now: datetime
) -> PendingAction:
    words = " ".join(delivery.message.split())
    shown = words if len(words) <= EXCERPT_LENGTH else f"{words[:EXCERPT_LENGTH]}…"
    recipient = f"{delivery.target} on {delivery.channel}"
    new = ", who is new" if ApprovalReason.NEW_RECIPIENT in reasons else ""
    links = delivery.outside_links
    with_links = f", with links from outside ({', '.join(links)})" if links else ""
    return PendingAction(
        id=uuid7(),
        kind=reasons[-1],
        summary=f'{delivery.origin} wants to write to {recipient}{new}{with_links}: "{shown}"',
        payload={"reasons": list(reasons), "links": list(links)},
        delivery_id=delivery.delivery_id,
        created_at=now,
        expires_at=now + APPROVAL_TTL,
    )
