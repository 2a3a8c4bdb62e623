"""What a butler does with its queues, by its role, and what it says of itself to the Switchboard."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import structlog

from butlers.config.butler import ButlerKind
from butlers.domain.queues import NOTIFY, ROUTES
from butlers.domain.registration import Registration
from butlers.domain.session import SessionRequest
from butlers.queue import leased_queue as queue
from butlers.queue.outbox import Outbox
from butlers.queue.pause import Pause, apply_answer
from butlers.queue.worker import QueueWorker
from butlers.scheduling.jobs import Jobs
from butlers.sessions.routes import RouteInbox
from butlers.tools.role import QueueWork

if TYPE_CHECKING:
    from butlers.daemon.butler import Butler

log = structlog.get_logger()


def start_workers(butler: Butler, work: Iterable[QueueWork]) -> None:
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
        butler.stack.push_async_callback(_stop_worker, butler, worker)


async def _stop_worker(butler: Butler, worker: QueueWorker) -> None:
    await worker.stop(butler.grace_s)


async def wait_for_calls(butler: Butler) -> None:
    """Let running calls end, and the sessions that they wait for; nobody from outside begins a new one."""
    butler.in_flight.refuse_outsiders()
    if not await butler.in_flight.wait_idle(butler.grace_s):
        log.warning(
            "calls and sessions did not end in time",
            calls=butler.in_flight.count,
            sessions=butler.guard.count,
        )


def core_workers(butler: Butler) -> list[QueueWork]:
    """Return the queue work of every butler: routed messages, and notifications to the Switchboard."""
    config = butler.config
    routes = RouteInbox(
        config.name,
        butler.database,
        butler.spawner,
        waits_for_budget=config.budget.at_limit == "wait",
    )
    work = [QueueWork(ROUTES, routes.process, config.runtime.max_concurrent_sessions)]
    if config.switchboard is not None:
        outbox = Outbox(butler.peers, config.switchboard.url)
        work.append(QueueWork(NOTIFY, outbox.hand_over, config.buffer.worker_count))
    return work


async def apply_pause_answer(butler: Butler, told: Pause | None, asked_at: int) -> None:
    """What the owner told the house while this butler was away counts for it too. And the Switchboard is
    there: what waited for it does not wait for the end of its pause."""
    async with butler.database.transaction() as connection:
        await apply_answer(connection, told, butler.pause_state, asked_at)
        await queue.make_due(connection, NOTIFY)


def jobs_of(butler: Butler) -> Jobs:
    """The jobs that working modules declare, by their function's name."""
    return {job.__name__: job for module in butler.modules.active for job in module.jobs}


def credentials_of(butler: Butler) -> list[tuple[str, str]]:
    """What working modules declare, for sessions: the variable, and the name in the store."""
    return [
        (need.env or need.name, need.name)
        for module in butler.modules.active
        for need in module.credentials()
    ]


def offered_bytes(butler: Butler, session: SessionRequest) -> int:
    """Of the tool list that this session's model is given."""
    return sum(
        size
        for name, size in butler.tool_bytes.items()
        if (session.tools is None or name in session.tools) and butler.modules.is_enabled(name)
    )


def registration_of(butler: Butler) -> Registration:
    config = butler.config
    assert config.switchboard is not None
    return Registration(
        name=config.name,
        url=butler.url,
        description=config.description,
        infrastructure=config.role is not ButlerKind.DOMAIN,
        reflexes=butler.reflexes.patterns if config.skills.reflexes else (),
        triggers=config.switchboard.triggers,
        capabilities=tuple(sorted(module.name for module in butler.modules.active)),
        contract_min=config.switchboard.route_contract_min,
        contract_max=config.switchboard.route_contract_max,
        liveness_ttl_s=config.switchboard.liveness_ttl_s,
    )
