"""The Messenger's desk: takes deliveries in, and parks those that need the owner's word first."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

from butlers.db.database import Connection
from butlers.domain.clock import uuid7
from butlers.domain.delivery import OWNERS_CONSOLE, DeliveryRequest, DeliveryState, Intent
from butlers.domain.errors import StateConflict
from butlers.domain.message import CONSOLE
from butlers.domain.queues import DELIVERIES
from butlers.messenger import deliveries, pending_actions, recipients
from butlers.messenger.pending_actions import Kind, PendingAction
from butlers.messenger.terms import Terms
from butlers.queue import dead_letters
from butlers.queue import leased_queue as queue
from butlers.wire.codec import encode

PATIENCE = timedelta(hours=72)  # for the owner's word
EXCERPT = 120


async def accept_delivery(
    connection: Connection, delivery: DeliveryRequest, terms: Terms, now: datetime
) -> UUID:
    """Keep a delivery before anything is sent; one key is one delivery."""
    delivery.check()
    reasons = await _reasons_to_ask(connection, delivery, terms)
    delivery_id = await deliveries.store_delivery(
        connection,
        delivery,
        accepted_at=now,
        # Also the time that it waited on its way here counts.
        expires_at=terms.deadline(delivery.intent, min(delivery.made_at or now, now)),
        state=DeliveryState.PARKED if reasons else DeliveryState.ACCEPTED,
        reason=", ".join(reasons) or None,
    )
    if delivery_id != delivery.delivery_id:
        return delivery_id
    if delivery.intent is not Intent.SEND:
        # It goes back to where a message came from: they have written to us.
        await recipients.remember(connection, delivery.channel, delivery.target, "wrote", now)
    if reasons:
        await pending_actions.store_action(connection, _question(delivery, reasons, now))
    else:
        await enqueue(connection, delivery, str(delivery_id))
    return delivery_id


async def accept_notice(
    connection: Connection, butler: str, message: str, terms: Terms, now: datetime
) -> None:
    """Something the Messenger itself has to say to the owner. What becomes of it is not told again."""
    notice = DeliveryRequest.to_owner(uuid7(), butler, message)
    await deliveries.store_delivery(
        connection,
        notice,
        accepted_at=now,
        expires_at=terms.deadline(notice.intent, now),
        told_at=now,
    )
    await enqueue(connection, notice, str(notice.delivery_id))


async def enqueue(connection: Connection, delivery: DeliveryRequest, key: str) -> None:
    await queue.enqueue(connection, DELIVERIES, key, encode(delivery), lane=delivery.lane)


async def release(connection: Connection, delivery_id: UUID, terms: Terms, now: datetime) -> None:
    """Put a parked delivery on its way. Its time begins now: it was not its fault that it waited."""
    record = await deliveries.lock_delivery(connection, delivery_id)
    if record.state is not DeliveryState.PARKED:
        return
    until = terms.deadline(record.delivery.intent, now)
    await deliveries.accept_again(connection, delivery_id, "approved", until)
    await enqueue(connection, record.delivery, str(delivery_id))


async def resend(connection: Connection, delivery_id: UUID, terms: Terms, now: datetime) -> None:
    """Send once more what did not arrive, or may not have: the owner's own decision."""
    record = await deliveries.lock_delivery(connection, delivery_id)
    if not record.state.may_resend:
        raise StateConflict(
            f"the delivery is {record.state}",
            hint="what was delivered, or goes on by itself, is not sent again",
        )
    until = terms.deadline(record.delivery.intent, now)
    await deliveries.accept_again(connection, delivery_id, "sent again by the owner", until)
    await dead_letters.discard_deliveries(connection, delivery_id)
    await enqueue(connection, record.delivery, f"{delivery_id}:{uuid7()}")


async def _reasons_to_ask(
    connection: Connection, delivery: DeliveryRequest, terms: Terms
) -> list[Kind]:
    """Why the owner is asked first. A channel that is not there is refused later, without a question;
    a line on the owner's own console reaches nobody else, and opens no links. Whoever is answered is not new,
    but links that somebody else put into the conversation may carry out what was said in it."""
    own = delivery.channel == CONSOLE and delivery.target == OWNERS_CONSOLE
    if own or delivery.channel not in terms.channels:
        return []
    links = [Kind.OUTSIDE_LINKS] if delivery.outside_links else []
    if delivery.intent is not Intent.SEND:
        return links
    known = await recipients.is_known(connection, delivery.channel, delivery.target)
    return links if known else [Kind.NEW_RECIPIENT, *links]


def _question(delivery: DeliveryRequest, reasons: list[Kind], now: datetime) -> PendingAction:
    words = " ".join(delivery.message.split())
    shown = words if len(words) <= EXCERPT else f"{words[:EXCERPT]}…"
    whom = f"{delivery.target} on {delivery.channel}"
    new = ", who is new" if Kind.NEW_RECIPIENT in reasons else ""
    links = delivery.outside_links
    with_links = f", with links from outside ({', '.join(links)})" if links else ""
    return PendingAction(
        id=uuid7(),
        kind=reasons[-1],
        summary=f'{delivery.origin} wants to write to {whom}{new}{with_links}: "{shown}"',
        payload={"reasons": list(reasons), "links": list(links)},
        delivery_id=delivery.delivery_id,
        created_at=now,
        expires_at=now + PATIENCE,
    )
