"""Accepts deliveries: stores and queues them, or parks them until the owner approves."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from butlers.channels.base import DeliveryOutcome, DeliveryQueue
from butlers.db.database import Connection, Database
from butlers.domain.approval import Question
from butlers.domain.clock import Clock, uuid7
from butlers.domain.delivery import DeliveryRequest, DeliveryState, Intent
from butlers.domain.errors import StateConflict
from butlers.messenger import approvals, deliveries
from butlers.messenger.policy import DeliveryPolicy
from butlers.queue import dead_letters
from butlers.tools.gate import CallGate

NO_GATE = "it needs the owner's approval, and the approvals module is not enabled"
LOOK_AGAIN_S = 0.1  # while a tool waits for a receipt


async def accept_delivery(
    connection: Connection,
    delivery: DeliveryRequest,
    policy: DeliveryPolicy,
    now: datetime,
    gate: CallGate | None,
    *,
    solicited: bool = True,
) -> UUID:
    """Store a delivery before anything is sent. One idempotency key is one delivery.

    ``solicited``: a reply or a reaction is to a message that the Switchboard has received.
    """
    delivery.check()
    delivery = policy.readdress(delivery)
    solicited = solicited and delivery.intent is not Intent.SEND
    reasons = await approvals.approval_reasons(connection, delivery, policy, solicited=solicited)
    question = approvals.question_about(delivery, reasons) if reasons else None
    if question and gate:
        known = await deliveries.find_by_key(connection, delivery.idempotency_key)
        if known is not None:
            return known
        if await gate.admit(connection, question):
            question, reasons = None, []
    delivery_id = await deliveries.store_delivery(
        connection,
        delivery,
        accepted_at=now,
        # The time to live includes the time on the way here.
        expires_at=policy.deadline(delivery.intent, min(delivery.made_at or now, now)),
        state=_first_state(question, gate),
        reason=NO_GATE if question and gate is None else ", ".join(reasons) or None,
    )
    if delivery_id != delivery.delivery_id:
        return delivery_id
    if solicited:
        # It answers a message, so the recipient has written before.
        await approvals.remember_recipient(
            connection, delivery.channel, delivery.target, "wrote", now
        )
    if question is None:
        await deliveries.enqueue(connection, delivery, str(delivery_id))
    elif gate is not None:
        await gate.ask(connection, question)
    return delivery_id


def _first_state(question: Question | None, gate: CallGate | None) -> DeliveryState:
    if question is None:
        return DeliveryState.ACCEPTED
    return DeliveryState.FAILED if gate is None else DeliveryState.PARKED


@dataclass(frozen=True, slots=True)
class DeliveryIntake(DeliveryQueue):
    """The Messenger's deliveries as the tools of channels see them."""

    database: Database
    policy: DeliveryPolicy
    clock: Clock
    gate: CallGate | None

    async def accept(self, delivery: DeliveryRequest) -> UUID:
        async with self.database.transaction() as connection:
            now = self.clock.now()
            return await accept_delivery(
                connection, delivery, self.policy, now, self.gate, solicited=False
            )

    async def outcome(self, delivery_id: UUID, wait_s: float) -> DeliveryOutcome:
        deadline = asyncio.get_running_loop().time() + wait_s
        while True:
            async with self.database.transaction() as connection:
                found = await deliveries.get_delivery(connection, delivery_id)
            assert found is not None  # it was accepted
            state = DeliveryState(found["state"])
            settled = state.is_over or state is DeliveryState.PARKED
            if settled or asyncio.get_running_loop().time() >= deadline:
                message_id = found["provider_message_id"]
                return DeliveryOutcome(delivery_id, state, message_id, found["reason"])
            await asyncio.sleep(LOOK_AGAIN_S)


async def accept_notice(
    connection: Connection,
    notice: DeliveryRequest,
    policy: DeliveryPolicy,
    now: datetime,
    *,
    avoid: Collection[str] = (),
) -> None:
    """Queue a message of the Messenger itself to the owner. Its own failure is not reported again.

    It goes to the console if the owner's channel is one to avoid, because that channel does not work.
    """
    if policy.owner[0] not in avoid:
        notice = policy.readdress(notice)
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
