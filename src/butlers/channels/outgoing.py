"""Sends from a tool of a channel: through the Messenger's queue; the tool waits for the receipt."""

from __future__ import annotations

from typing import Any

from butlers.channels.base import DeliveryQueue
from butlers.domain.clock import uuid7
from butlers.domain.delivery import DeliveryRequest, DeliveryState, Intent
from butlers.tools.context import CallContext

WAIT_S = 15.0  # for a receipt, before the tool returns without one


async def send_and_wait(
    ctx: CallContext,
    channel: str,
    target: str,
    message: str,
    *,
    intent: Intent = Intent.SEND,
    emoji: str | None = None,
    answers: str | None = None,
    thread: str | None = None,
    subject: str | None = None,
    references: tuple[str, ...] = (),
) -> dict[str, Any]:
    """Queue a delivery and return its receipt, or its state if there is none yet.

    Nobody has written from the target because a caller says so: unlike an answer of ``notify``, a reply of a
    tool is a new message, which needs approval if the recipient is new. The same text to the same recipient
    in one request is one delivery.
    """
    request_id = ctx.request.request_id if ctx.request else None
    delivery = DeliveryRequest(
        delivery_id=uuid7(),
        origin=ctx.butler,
        intent=intent,
        channel=channel,
        target=target,
        message=message,
        request_id=request_id,
        emoji=emoji,
        source_event=answers,
        thread=thread,
        subject=subject,
        references=references,
    )
    queue = ctx.service(DeliveryQueue)
    outcome = await queue.outcome(await queue.accept(delivery), WAIT_S)
    return {
        "status": "pending_approval"
        if outcome.state is DeliveryState.PARKED
        else str(outcome.state),
        "delivery_id": str(outcome.delivery_id),
        "message_id": outcome.message_id,
        "reason": outcome.reason,
    }
