"""Puts the Switchboard's parts together: the desk at the door, triage, routing, and the owner's commands."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import structlog

from butlers.domain.errors import ButlersError
from butlers.queue import leased_queue as queue
from butlers.queue.outbox import queue_delivery
from butlers.switchboard import registry
from butlers.switchboard.classification import Classifier
from butlers.switchboard.commands import Commands
from butlers.switchboard.decide import Judge
from butlers.switchboard.dispatch import MESSENGER, Dispatch, History
from butlers.switchboard.inbound import FrontOffice
from butlers.switchboard.ingest import INBOX, Desk
from butlers.switchboard.ingest_stats import Tally
from butlers.tools.blobs import BlobStore

if TYPE_CHECKING:
    from butlers.daemon.butler import Butler

log = structlog.get_logger()


def open_office(butler: Butler) -> None:
    config, triage = butler.config, butler.config.triage
    desk = Desk(
        butler.clock,
        BlobStore(config.storage.blob_dir),
        queue_delivery,
        config.buffer.queue_capacity,
        timedelta(seconds=triage.dedupe_window_s),
    )

    async def origin_of(channel: str, message_id: str) -> str | None:
        return await _origin_of(butler, channel, message_id)

    judge = Judge(butler.database, timedelta(days=triage.affinity_days), origin_of)
    butler.front = FrontOffice(desk, judge, Tally(butler.clock))
    butler.dispatch = Dispatch(
        butler.database,
        butler.peers,
        butler.clock,
        judge.decide,
        Classifier(butler.database, butler.spawner).classify,
        History(timedelta(minutes=triage.history_minutes), triage.history_messages),
    )
    butler.commands = Commands(
        butler.database,
        butler.peers,
        butler.clock,
        ZoneInfo(config.timezone),
        lambda: len(butler.spawner.stop_all()),
        butler.status,
        lambda: _wake(butler),
    )


async def _origin_of(butler: Butler, channel: str, message_id: str) -> str | None:
    """Which butler a message of ours came from. The Messenger knows; while it is away, nobody does."""
    async with butler.database.transaction() as connection:
        messenger = await registry.find_registration(connection, MESSENGER)
    if messenger is None:
        return None
    try:
        answer = await butler.peers.call(
            MESSENGER,
            messenger.url,
            "delivery_origin",
            {"channel": channel, "provider_message_id": message_id},
        )
    except ButlersError as error:
        log.warning("whose message is answered could not be asked", error=str(error))
        return None
    origin: str | None = answer["origin"]
    return origin


async def _wake(butler: Butler) -> None:
    async with butler.database.transaction() as connection:
        await queue.hurry(connection, INBOX)
