"""Retention: delete rows and files that ended longer ago than ``storage.keep_days``, a few times a day.

Kept are queue items that are not done (dead letters included) and every row of the same request, because
a replay must find what was done; messages held for the owner; console lines not shown yet. Modules' own
data, the session log and the audit are not touched.

"Open" means open in this butler's schema. A Switchboard that stopped after a butler took a message, and
before it noted so, sends the message again when it is back; the butler recognizes it only while it keeps
the old rows. So no butler should keep rows for a shorter time than the Switchboard may be off.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

import structlog

from butlers.config.butler import ButlerConfig
from butlers.db.database import Database
from butlers.domain.clock import Clock
from butlers.queue import queries
from butlers.queue.loops import repeat
from butlers.tools.attachments import BlobStore
from butlers.tools.role import Role

log = structlog.get_logger()

FIRST_S = 600.0  # after the start
AGAIN_S = 6 * 3600.0
BATCH = 1_000  # rows per transaction, so that other writers do not wait long


class Retention:
    def __init__(
        self, config: ButlerConfig, database: Database, clock: Clock, roles: Sequence[Role]
    ) -> None:
        self._keep = timedelta(days=config.storage.keep_days)  # zero: keep everything
        self._blobs = BlobStore(config.storage.blob_dir)
        self._database = database
        self._clock = clock
        self._roles = roles

    async def run(self) -> None:
        async def sweep() -> None:
            await self.sweep()

        await repeat(sweep, "retention", first_s=FIRST_S, every_s=AGAIN_S)

    async def sweep(self) -> dict[str, int]:
        """Delete what is old, and return the number of rows per table and of files."""
        async with self._database.transaction() as connection:
            in_use = await queries.files_of_open_items(connection)
        # Butlers share the files: those that this butler needs are touched, so that no other deletes them.
        await asyncio.to_thread(self._blobs.renew, in_use)
        if not self._keep:
            return {}
        before = self._clock.now() - self._keep
        of_roles = [role.retention() for role in self._roles]
        deleted = await delete_old_rows(self._database, of_roles, before)
        for role in self._roles:
            async with self._database.transaction() as connection:
                stored = await role.stored_files(connection)
            if stored is not None:
                deleted["files"] = await asyncio.to_thread(
                    self._blobs.sweep, before, in_use | stored
                )
        if any(deleted.values()):
            log.info("retention deleted old rows", before=before.isoformat(), **deleted)
        return deleted


async def delete_old_rows(
    database: Database, of_roles: Iterable[Mapping[str, str]], before: datetime
) -> dict[str, int]:
    """Delete the rows that ended before a time, and return their number per table."""
    return {
        table: await _delete_rows(database, table, condition, before)
        for conditions in (queries.RETENTION, *of_roles)
        for table, condition in conditions.items()
    }


async def _delete_rows(database: Database, table: str, condition: str, before: datetime) -> int:
    deleted = 0
    while True:
        async with database.transaction() as connection:
            still_open = await queries.open_ids(connection)
            rows = await connection.fetch(
                f"""
                DELETE FROM {table}
                WHERE ctid = ANY(ARRAY(SELECT ctid FROM {table} WHERE {condition} LIMIT {BATCH}))
                  AND {condition}
                RETURNING 1
                """,
                before,
                still_open,
            )
        deleted += len(rows)
        if len(rows) < BATCH:
            return deleted
