"""One connection per daemon that wakes its workers and vouches that the daemon lives.

It LISTENs for its schema's queue notifications and holds an advisory lock on the daemon's holder number.
When the process dies the server drops the lock, and ``queue.recover`` gives its items to the next one.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator
from contextlib import contextmanager

import asyncpg
import structlog

from butlers.domain.errors import DatabaseUnavailable
from butlers.store import queue
from butlers.store.database import GONE, Login, connect

log = structlog.get_logger()

RETRY_S = 0.25


class Listener:
    def __init__(self, login: Login, application: str, *, recover_every_s: float = 5.0) -> None:
        self.holder = secrets.randbits(62)
        self._login = login
        self._application = application
        self._recover_every_s = recover_every_s
        self._woken: dict[str, set[asyncio.Event]] = {}

    @contextmanager
    def wakes(self, topic: str) -> Iterator[asyncio.Event]:
        """An event that is set whenever something is notified about ``topic``."""
        event = asyncio.Event()
        self._woken.setdefault(topic, set()).add(event)
        try:
            yield event
        finally:
            self._woken[topic].discard(event)

    async def open(self) -> asyncpg.Connection[asyncpg.Record]:
        connection = await connect(self._login, self._application)
        await connection.execute("SELECT pg_advisory_lock($1)", self.holder)
        await connection.add_listener(f"butlers:{self._login.schema}", self._heard)
        await queue.recover(connection)
        self._wake_all()  # what was notified before we listened
        return connection

    async def run(self, connection: asyncpg.Connection[asyncpg.Record]) -> None:
        """Keep listening for as long as the daemon lives, through any loss of the database."""
        try:
            while True:
                try:
                    await self._watch(connection)
                except GONE as error:
                    log.warning("listener lost the database", error=str(error))
                    connection.terminate()
                    connection = await self._reopen()
        finally:
            connection.terminate()

    async def _watch(self, connection: asyncpg.Connection[asyncpg.Record]) -> None:
        while True:
            await asyncio.sleep(self._recover_every_s)
            await queue.recover(connection)

    async def _reopen(self) -> asyncpg.Connection[asyncpg.Record]:
        while True:
            try:
                connection = await self.open()
            except (DatabaseUnavailable, *GONE):
                await asyncio.sleep(RETRY_S)
            else:
                log.info("listener has the database back")
                return connection

    def _heard(self, _connection: object, _pid: int, _channel: str, payload: object) -> None:
        for event in self._woken.get(str(payload), ()):
            event.set()

    def _wake_all(self) -> None:
        for events in self._woken.values():
            for event in events:
                event.set()
