"""The listening connection of a daemon: it wakes the workers and proves that the daemon lives.

It LISTENs for its schema's queue notifications and holds an advisory lock on the daemon's holder number.
When the process dies, the server drops the lock, and ``leased_queue.recover`` releases its items.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta

import asyncpg
import structlog

from butlers.db.database import GONE, Login, connect, is_gone
from butlers.domain.errors import DatabaseUnavailable
from butlers.queue import leased_queue as queue

log = structlog.get_logger()

RETRY_S = 0.25
SMALLEST_JUMP = timedelta(seconds=5)  # less is the drift of two clocks, and does no harm


class JumpDetector:
    """Compares the database's wall clock with our monotonic clock."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._last: tuple[datetime, float] | None = None

    def jump(self, now: datetime) -> timedelta | None:
        """Return by how much the wall clock has been set since the last look; None: it was not."""
        monotonic, last = self._monotonic(), self._last
        self._last = (now, monotonic)
        if last is None:
            return None
        jump = (now - last[0]) - timedelta(seconds=monotonic - last[1])
        return jump if abs(jump) > SMALLEST_JUMP else None


class Listener:
    def __init__(
        self,
        login: Login,
        application: str,
        *,
        recover_every_s: float = 5.0,
        grace_s: float = 0.0,
    ) -> None:
        self.holder = secrets.randbits(62)
        self._login = login
        self._application = application
        self._recover_every_s = recover_every_s
        self._grace = timedelta(seconds=grace_s)
        self._woken: dict[str, set[asyncio.Event]] = {}
        self._woken_here: set[tuple[int, str]] = set()  # whose notifications are still to be heard
        self.holds_lock = False  # only then are this daemon's leases respected

    @contextmanager
    def wakes(self, topic: str, event: asyncio.Event) -> Iterator[None]:
        """Set the event at each notification of ``topic``, while the block lasts."""
        self._woken.setdefault(topic, set()).add(event)
        try:
            yield
        finally:
            self._woken[topic].discard(event)

    def wake(self, topics: Iterable[str], pid: int) -> None:
        """Set the events of topics that a connection of this process has notified, without waiting for it.

        ``pid`` identifies the connection: its notification wakes nobody a second time.
        """
        for topic in topics:
            if topic in self._woken:
                self._set_events(topic)
                self._woken_here.add((pid, topic))

    async def open(self) -> asyncpg.Connection[asyncpg.Record]:
        connection = await connect(self._login, self._application)
        try:
            # Shared: on the server, a connection that was cut off may still hold it.
            await connection.execute("SELECT pg_advisory_lock_shared($1)", self.holder)
            await connection.add_listener(f"butlers:{self._login.schema}", self._heard)
            await queue.recover(connection, self._grace)
        except BaseException:
            connection.terminate()
            raise
        self.holds_lock = True
        self._woken_here.clear()
        self._wake_all()  # for notifications before this connection listened
        return connection

    async def run(self, connection: asyncpg.Connection[asyncpg.Record]) -> None:
        """Listen until cancelled; reconnect whenever the database connection is lost."""
        try:
            while True:
                try:
                    await self._watch(connection)
                except Exception as error:  # the loop must go on: nothing else wakes the workers
                    unexpected = not is_gone(error)
                    log.warning("listener lost the database", error=str(error), exc_info=unexpected)
                    self.holds_lock = False
                    connection.terminate()
                    connection = await self._reopen()
        finally:
            self.holds_lock = False
            connection.terminate()

    async def _watch(self, connection: asyncpg.Connection[asyncpg.Record]) -> None:
        lost = asyncio.Event()
        connection.add_termination_listener(lambda _: lost.set())
        clock = JumpDetector()
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(lost.wait(), self._recover_every_s)
            # First the jump: a lease that only the clock has ended must not be released.
            if jump := clock.jump(await connection.fetchval("SELECT clock_timestamp()")):
                items = await queue.shift_times(connection, jump)
                log.warning("the clock has jumped", by_s=jump.total_seconds(), items=items)
            await queue.recover(connection, self._grace)

    async def _reopen(self) -> asyncpg.Connection[asyncpg.Record]:
        while True:
            try:
                connection = await self.open()
            except (DatabaseUnavailable, *GONE):
                await asyncio.sleep(RETRY_S)
            except Exception:  # the loop must go on
                log.exception("listener cannot use the database")
                await asyncio.sleep(self._recover_every_s)
            else:
                log.info("listener has reconnected to the database")
                return connection

    def _heard(self, _connection: object, pid: int, _channel: str, payload: object) -> None:
        topic = str(payload)
        if (pid, topic) in self._woken_here:
            self._woken_here.discard((pid, topic))
        else:
            self._set_events(topic)

    def _set_events(self, topic: str) -> None:
        for event in self._woken.get(topic, ()):
            event.set()

    def _wake_all(self) -> None:
        for topic in self._woken:
            self._set_events(topic)
