"""The roles that exist, and the workers of a butler's queues.

A role's tools, workers, routes and tables are declared in its own package.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from butlers.config.butler import ButlerConfig
from butlers.domain.queues import NOTIFY, ROUTES
from butlers.messenger.role import MessengerRole
from butlers.modules.approvals.role import ApprovalsRole
from butlers.queue.outbox import Outbox
from butlers.queue.worker import QueueWorker
from butlers.scheduling.role import SchedulingRole
from butlers.sessions.routes import RouteInbox
from butlers.switchboard.role import SwitchboardRole
from butlers.tools.role import QueueWork, Role

if TYPE_CHECKING:
    from butlers.daemon.butler import Butler

ROLES: tuple[type[Role], ...] = (SchedulingRole, ApprovalsRole, SwitchboardRole, MessengerRole)


def roles_of(config: ButlerConfig) -> tuple[type[Role], ...]:
    return tuple(role for role in ROLES if role.belongs_to(config))


def core_workers(butler: Butler) -> list[QueueWork]:
    """Return the queue work of every butler: routed messages, and notifications to the Switchboard."""
    config = butler.config
    routes = RouteInbox(config.name, butler.database, butler.spawner, butler.recovery)
    work = [QueueWork(ROUTES, routes.process, config.runtime.max_concurrent_sessions)]
    if config.switchboard is not None:
        outbox = Outbox(butler.peers, config.switchboard.url)
        work.append(QueueWork(NOTIFY, outbox.hand_over, config.buffer.worker_count))
    return work


def start_workers(butler: Butler, work: Iterable[QueueWork]) -> None:
    """Start a worker for each queue. At shutdown it may finish its items within the grace time."""

    async def stop(worker: QueueWorker) -> None:
        await worker.stop(butler.grace_s)

    for one in work:
        worker = QueueWorker(
            butler.database,
            butler.listener,
            one.queue,
            one.handler,
            concurrency=one.concurrency,
            batch=butler.config.buffer.scanner_batch_size,
            streak=butler.config.buffer.max_consecutive_same_tier,
        )
        worker.start()
        butler.stack.push_async_callback(stop, worker)
