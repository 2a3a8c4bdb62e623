"""Sweeps out what was over long ago, a few times a day; how long ago is the owner's to say, and who says
nothing keeps everything."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import structlog

from butlers.config.butler import ButlerConfig, Role
from butlers.daemon import retention_rows as retention
from butlers.db.database import Database
from butlers.domain.clock import Clock
from butlers.domain.errors import DatabaseUnavailable
from butlers.tools.blobs import BlobStore

log = structlog.get_logger()

FIRST_S = 600.0  # a start has better things to do
AGAIN_S = 6 * 3600.0


class Janitor:
    def __init__(self, config: ButlerConfig, database: Database, clock: Clock) -> None:
        self._role = config.role
        self._keep = timedelta(days=config.storage.keep_days)
        self._blobs = BlobStore(config.storage.blob_dir)
        self._database = database
        self._clock = clock

    async def run(self) -> None:
        await asyncio.sleep(FIRST_S)
        while True:
            try:
                await self.sweep()
            except DatabaseUnavailable:
                pass
            except Exception:  # a loop edge: the next time it may work
                log.exception("could not sweep out what is old")
            await asyncio.sleep(AGAIN_S)

    async def sweep(self) -> dict[str, int]:
        """How much of what went."""
        async with self._database.transaction() as connection:
            at_work = await retention.files_at_work(connection)
        # One disk for all butlers: what one of them still needs is made young, and so nobody removes it.
        await asyncio.to_thread(self._blobs.renew, at_work)
        if not self._keep:
            return {}
        before = self._clock.now() - self._keep
        gone = await retention.sweep(self._database, self._role, before)
        if self._role is Role.SWITCHBOARD:
            async with self._database.transaction() as connection:
                wanted = at_work | await retention.files_of_messages(connection)
            gone["files"] = await asyncio.to_thread(self._blobs.sweep, before, wanted)
        if any(gone.values()):
            log.info("swept out what is old", before=before.isoformat(), **gone)
        return gone
