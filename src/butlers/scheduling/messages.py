"""Messages of schedules that need no model: reminders, and questions about missed times."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from uuid import UUID

from butlers.db.database import Connection
from butlers.domain.clock import uuid7
from butlers.domain.delivery import OWNERS_CONSOLE, DeliveryRequest, Intent
from butlers.domain.message import CONSOLE
from butlers.domain.schedule import Address, Run, Task
from butlers.scheduling.plan import local

# Queues a delivery in the caller's transaction.
Deliver = Callable[[Connection, DeliveryRequest], Awaitable[UUID]]

OWNER = Address(CONSOLE, OWNERS_CONSOLE)


def delivery(butler: str, address: Address, run: Run, message: str) -> DeliveryRequest:
    """Return a run's delivery. The run's id as request id makes a repeated run the same delivery."""
    return DeliveryRequest(
        delivery_id=uuid7(),
        origin=butler,
        intent=Intent.SEND,
        channel=address.channel,
        target=address.target,
        message=message,
        request_id=run.id,
        thread=address.thread,
    )


def reminder(butler: str, task: Task, run: Run, *, late: bool) -> DeliveryRequest:
    message = task.message or ""
    if late:
        message += f"\n(This was due at {local(task, run.due_at)}; I was not running then.)"
    return delivery(butler, task.address or OWNER, run, message)


def question(butler: str, task: Task, run: Run, text: str) -> DeliveryRequest:
    return delivery(butler, task.address or OWNER, run, text)
