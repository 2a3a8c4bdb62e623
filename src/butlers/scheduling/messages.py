"""Messages of schedules that need no model: reminders, and questions about missed times."""

from __future__ import annotations

from butlers.db.database import Connection
from butlers.domain.clock import uuid7
from butlers.domain.delivery import OWNERS_CONSOLE, DeliveryRequest, Intent
from butlers.domain.links import links_beyond
from butlers.domain.message import CONSOLE
from butlers.domain.schedule import Address, Run, Task
from butlers.queue.outbox import queue_delivery
from butlers.scheduling.plan import local

OWNER = Address(CONSOLE, OWNERS_CONSOLE)


async def queue_message(
    connection: Connection,
    butler: str,
    task: Task,
    run: Run,
    message: str,
    *,
    tainted: bool = False,
) -> None:
    """Queue a run's message to the task's recipient, or to the owner.

    The run's id as request id makes a repeated run the same delivery. ``tainted``: the text comes from a
    session that has read text of others.
    """
    address = task.address or OWNER
    outside = tainted or not task.is_trusted
    delivery = DeliveryRequest(
        delivery_id=uuid7(),
        origin=butler,
        intent=Intent.SEND,
        channel=address.channel,
        target=address.target,
        message=message,
        request_id=run.id,
        thread=address.thread,
        outside_links=links_beyond(message, "") if outside else (),
    )
    await queue_delivery(connection, delivery)


def reminder_text(task: Task, run: Run, *, late: bool) -> str:
    message = task.message or ""
    if not task.is_trusted and (task.request is None or task.request.is_owners):
        message += f"\n(You did not write this: it came up while I read text of {task.maker}.)"
    if late:
        message += f"\n(This was due at {local(task, run.due_at)}; I was not running then.)"
    return message
