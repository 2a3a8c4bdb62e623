"""The ends of a queue's items: those that come while one is being written down are the next transaction."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import structlog

from butlers.db.database import Database
from butlers.domain import tasks
from butlers.domain.errors import DatabaseUnavailable
from butlers.queue import leased_queue as queue
from butlers.queue.leased_queue import Lease

log = structlog.get_logger()

RETRY_S = 0.5


@dataclass(frozen=True, slots=True)
class _End:
    lease: Lease
    result: Any
    written: asyncio.Future[None]


class Completions:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._waiting: list[_End] = []
        self._writing: asyncio.Task[None] | None = None

    async def complete(self, lease: Lease, result: Any) -> None:
        """Returns when it is committed, or was refused because another has taken the item over. Through
        an outage of the database it keeps trying: the item stays ours until then."""
        end = _End(lease, result, asyncio.get_running_loop().create_future())
        self._waiting.append(end)
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write())
        await end.written

    async def close(self) -> None:
        if self._writing is not None:
            await tasks.end(self._writing)

    async def _write(self) -> None:
        while self._waiting:
            ends = [end for end in self._waiting if not end.written.cancelled()]
            self._waiting.clear()
            if ends:
                await self._write_all(ends)

    async def _write_all(self, ends: list[_End]) -> None:
        try:
            ours = await self._commit(ends)
        except Exception as error:  # noqa: BLE001  (handed to whoever waits for it)
            if len(ends) > 1:  # one of them can not be kept; the others can
                for end in ends:
                    await self._write_all([end])
            elif not ends[0].written.done():
                ends[0].written.set_exception(error)
            return
        for end in ends:
            if end.lease.item_id not in ours:
                log.warning("late work refused", queue=end.lease.queue, item=end.lease.key)
            if not end.written.done():
                end.written.set_result(None)

    async def _commit(self, ends: list[_End]) -> set[Any]:
        told = False
        while True:
            try:
                async with self._database.transaction() as connection:
                    done = [(end.lease, end.result) for end in ends]
                    return await queue.complete_all(connection, done)
            except DatabaseUnavailable:
                if not told:
                    log.warning("could not settle items yet", items=len(ends))
                told = True
                await asyncio.sleep(RETRY_S)
