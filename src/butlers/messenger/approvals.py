"""Deliveries that need the owner's approval: the reasons, the question, the release, known recipients.

The approvals module stores and decides the question; approving it calls the tool ``delivery_release``.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal
from uuid import UUID

from butlers.db.database import Connection
from butlers.domain.approval import AskReason, Question, RiskTier
from butlers.domain.delivery import DeliveryRequest, DeliveryState
from butlers.domain.message import joined
from butlers.domain.provenance import Provenance, Trust
from butlers.messenger import deliveries
from butlers.messenger.policy import DeliveryPolicy

RELEASE = "delivery_release"  # the tool that an approval calls
EXCERPT_LENGTH = 120

KnownBy = Literal["approved", "wrote"]


class ApprovalReason(StrEnum):
    NEW_RECIPIENT = "new_recipient"
    OUTSIDE_LINKS = "outside_links"


_WHY = {
    ApprovalReason.NEW_RECIPIENT: "the recipient is new",
    ApprovalReason.OUTSIDE_LINKS: "the links came from other people's text",
}


async def approval_reasons(
    connection: Connection, delivery: DeliveryRequest, policy: DeliveryPolicy, *, solicited: bool
) -> list[ApprovalReason]:
    """Return the reasons to ask the owner first.

    None for the owner's own address, which reaches nobody else, and for an unknown channel, which is
    refused later. The recipient of a reply is not new, but links that another person put into the
    conversation could leak its content.
    """
    if policy.is_owners(delivery) or delivery.channel not in policy.channels:
        return []
    links = [ApprovalReason.OUTSIDE_LINKS] if delivery.outside_links else []
    if solicited:
        return links
    known = await is_known_recipient(connection, delivery.channel, delivery.target)
    return links if known else [ApprovalReason.NEW_RECIPIENT, *links]


def question_about(delivery: DeliveryRequest, reasons: list[ApprovalReason]) -> Question:
    """Return the question about a delivery.

    Deliveries that wait only for the same new recipient are decided together: the decision is about the
    recipient.
    """
    kind = reasons[-1]
    links = delivery.outside_links
    words = " ".join(delivery.message.split()) or delivery.emoji or ""
    shown = words if len(words) <= EXCERPT_LENGTH else f"{words[:EXCERPT_LENGTH]}…"
    recipient = f"{delivery.target} on {delivery.channel}"
    new = ", who is new" if ApprovalReason.NEW_RECIPIENT in reasons else ""
    with_links = f", with links from outside ({', '.join(links)})" if links else ""
    return Question(
        tool=RELEASE,
        arguments={
            "delivery_id": str(delivery.delivery_id),
            "channel": delivery.channel,
            "target": delivery.target,
            "origin": delivery.origin,
            "message": delivery.message,
            "links": list(links),
            "reasons": [str(reason) for reason in reasons],
        },
        reason=AskReason(
            "send a message", " and ".join(_WHY[reason] for reason in reasons), RiskTier.HIGH
        ),
        source=Provenance(
            Trust.OUTSIDE if links else Trust.OWNER,
            f"butler {delivery.origin}",
            delivery.request_id,
        ),
        group=joined(kind, delivery.channel, delivery.target),
        decides_group=kind is ApprovalReason.NEW_RECIPIENT,
        summary=f'{delivery.origin} wants to write to {recipient}{new}{with_links}: "{shown}"',
    )


@dataclass(frozen=True, slots=True)
class ApprovedDelivery:
    """An approved delivery, with the reasons why it waited."""

    delivery_id: UUID
    reasons: tuple[str, ...]


async def release(
    connection: Connection, approved: ApprovedDelivery, policy: DeliveryPolicy, now: datetime
) -> bool:
    """Queue a parked delivery, and remember its recipient. Its time to live starts now.

    Return False if it does not wait any more.
    """
    record = await deliveries.lock_delivery(connection, approved.delivery_id)
    to = record.delivery
    if ApprovalReason.NEW_RECIPIENT in approved.reasons:
        await remember_recipient(connection, to.channel, to.target, "approved", now)
    if record.state is not DeliveryState.PARKED:
        return False
    until = policy.deadline(to.intent, now)
    await deliveries.accept_again(connection, to.delivery_id, "approved", until)
    await deliveries.enqueue(connection, to, str(to.delivery_id))
    return True


async def end_parked(
    connection: Connection, delivery_id: UUID, state: DeliveryState, reason: str, now: datetime
) -> None:
    """End a delivery that waited: rejected, or not decided in time. The owner is told of the question."""
    record = await deliveries.lock_delivery(connection, delivery_id)
    if record.state is DeliveryState.PARKED:
        await deliveries.set_state(connection, delivery_id, state, reason)
        await deliveries.mark_told(connection, delivery_id, now)


# -- table recipients ----------------------------------------------------------------------------------


async def is_known_recipient(connection: Connection, channel: str, target: str) -> bool:
    """Return whether the owner approved the recipient, or the recipient wrote first."""
    found: Any = await connection.fetchval(
        "SELECT true FROM recipients WHERE channel = $1 AND target = $2", channel, target
    )
    return bool(found)


async def remember_recipient(
    connection: Connection, channel: str, target: str, known_by: KnownBy, now: datetime
) -> None:
    await connection.execute(
        """
        INSERT INTO recipients (channel, target, known_by, since) VALUES ($1, $2, $3, $4)
        ON CONFLICT (channel, target) DO NOTHING
        """,
        channel,
        target,
        known_by,
        now,
    )
