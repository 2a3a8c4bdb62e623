"""What a butler does with its queues, by its role, and what it says of itself to the Switchboard."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import structlog

from butlers.config.butler import Role
from butlers.domain import command
from butlers.domain.registration import Registration
from butlers.domain.session import SessionRequest
from butlers.messenger.sender import DELIVERIES
from butlers.queue import leased_queue as queue
from butlers.queue.outbox import NOTIFY, Outbox, queue_delivery
from butlers.queue.pause import Pause
from butlers.queue.pause_state import obey_answer
from butlers.queue.worker import Handler, QueueWorker
from butlers.scheduling.jobs import Jobs
from butlers.scheduling.runs import Runner
from butlers.scheduling.store import SCHEDULES
from butlers.sessions.routes import ROUTES, RouteInbox
from butlers.switchboard.ingest import INBOX

if TYPE_CHECKING:
    from butlers.daemon.butler import Butler

log = structlog.get_logger()

Work = tuple[str, Handler, int]


def start_workers(butler: Butler, work: Iterable[Work]) -> None:
    for queue_name, handler, concurrency in work:
        worker = QueueWorker(
            butler.database,
            butler.listener,
            queue_name,
            handler,
            concurrency=concurrency,
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


def work_at_the_doors(butler: Butler) -> list[Work]:
    """The Switchboard's two roads, and the Messenger's counter."""
    workers = butler.config.buffer.worker_count
    if butler.dispatch is not None and butler.commands is not None:
        return [
            (command.QUEUE, butler.commands.carry_out, 2),  # a stop beside the others
            (INBOX, butler.dispatch.route_message, workers),
            (DELIVERIES, butler.dispatch.forward_delivery, workers),
            (NOTIFY, butler.dispatch.forward_delivery, workers),  # what it has to say itself
        ]
    if butler.counter is not None:
        return [(DELIVERIES, butler.counter.send, workers)]
    return []


def work_of_all(butler: Butler) -> list[Work]:
    """What every butler does: routed messages, what is due, and what it has to say."""
    config = butler.config
    workers, sessions = config.buffer.worker_count, config.runtime.max_concurrent_sessions
    routes = RouteInbox(
        config.name,
        butler.database,
        butler.spawner,
        waits_for_budget=config.budget.at_limit == "wait",
    )
    work: list[Work] = [
        (ROUTES, routes.process, sessions),
        # More than there are sessions, so that a job does not wait for a model to finish.
        (SCHEDULES, _runner(butler).process, sessions + workers),
    ]
    if config.switchboard is not None:
        outbox = Outbox(butler.peers, config.switchboard.url)
        work.append((NOTIFY, outbox.hand_over, workers))
    return work


async def obey_house(butler: Butler, told: Pause | None, asked_at: int) -> None:
    """What the owner told the house while this butler was away counts for it too. And the Switchboard is
    there: what waited for it does not wait for the end of its pause."""
    async with butler.database.transaction() as connection:
        await obey_answer(connection, told, butler.house, asked_at)
        await queue.hurry(connection, NOTIFY)


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
        infrastructure=config.role is not Role.DOMAIN,
        reflexes=butler.reflexes.patterns if config.skills.reflexes else (),
        triggers=config.switchboard.triggers,
        capabilities=tuple(sorted(module.name for module in butler.modules.active)),
        contract_min=config.switchboard.route_contract_min,
        contract_max=config.switchboard.route_contract_max,
        liveness_ttl_s=config.switchboard.liveness_ttl_s,
    )


def _runner(butler: Butler) -> Runner:
    return Runner(
        butler.config.name,
        butler.database,
        butler.clock,
        butler.spawner,
        queue_delivery,
        butler.scheduler.jobs,
        timeout_s=butler.config.runtime.timeout_s,
        waits_for_budget=butler.config.budget.at_limit == "wait",
    )
