"""The owner's word on what is parked: approving puts it on its way in the same transaction."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from butlers.db.database import Connection
from butlers.domain.delivery import DeliveryState
from butlers.domain.errors import NotFound, StateConflict
from butlers.messenger import deliveries, pending_actions, recipients
from butlers.messenger.delivery_intake import release
from butlers.messenger.pending_actions import Decision, Kind, PendingAction
from butlers.messenger.terms import Terms


async def decide(
    connection: Connection,
    action_id: UUID,
    decision: Decision,
    by: str,
    terms: Terms,
    now: datetime,
) -> list[UUID]:
    """Decide once; the deliveries that it put on their way. The same word twice is one word."""
    action = await _open_action(connection, action_id, decision, now)
    if action is None:
        return []
    await pending_actions.decide_action(connection, action.id, decision, by, now)
    if decision is Decision.REJECTED:
        await deliveries.move(
            connection, action.delivery_id, DeliveryState.DISCARDED, f"rejected by {by}"
        )
        return []
    await release(connection, action.delivery_id, terms, now)
    also = await _others(connection, action, by, terms, now)
    return [action.delivery_id, *also]


async def _open_action(
    connection: Connection, action_id: UUID, decision: Decision, now: datetime
) -> PendingAction | None:
    """None: this was its decision already."""
    action = await pending_actions.lock_action(connection, action_id)
    if action is None:
        raise NotFound(
            f"there is no pending action {action_id}", hint="`butlers approvals list` shows them"
        )
    if action.decision is decision:
        return None
    if action.decision is not None or action.expires_at <= now:
        raise StateConflict(
            f"it is {action.decision or Decision.EXPIRED} already",
            hint=f"`butlers deliveries resend {action.delivery_id}` sends it all the same",
        )
    return action


async def _others(
    connection: Connection, action: PendingAction, by: str, terms: Terms, now: datetime
) -> list[UUID]:
    """Whoever is approved is known from now on: nothing else for them has to wait."""
    if Kind.NEW_RECIPIENT not in action.payload["reasons"]:
        return []
    to = (await deliveries.lock_delivery(connection, action.delivery_id)).delivery
    await recipients.remember(connection, to.channel, to.target, "approved", now)
    others = await pending_actions.lock_open_for(
        connection, to.channel, to.target, Kind.NEW_RECIPIENT
    )
    for other in others:
        await pending_actions.decide_action(connection, other.id, Decision.APPROVED, by, now)
        await release(connection, other.delivery_id, terms, now)
    return [other.delivery_id for other in others]
