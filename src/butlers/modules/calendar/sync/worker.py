"""The queue of synchronizations: one calendar at a time, repeated at an interval."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid5

import structlog

from butlers.db.database import Connection, Database
from butlers.domain.clock import Clock, uuid7
from butlers.domain.delivery import DeliveryRequest
from butlers.domain.errors import ButlersError, CredentialRefused
from butlers.modules.calendar import store as events
from butlers.modules.calendar.config import CalendarAccount
from butlers.modules.calendar.store import CalendarSource
from butlers.modules.calendar.sync import store
from butlers.modules.calendar.sync.dav import DavClient
from butlers.modules.calendar.sync.engine import CalendarSync, SyncReport
from butlers.modules.calendar.sync.feed import sync_feed
from butlers.queue import leased_queue as queue
from butlers.queue.leased_queue import Lease
from butlers.queue.outbox import queue_delivery
from butlers.secrets.credentials import CredentialMissing

log = structlog.get_logger()

QUEUE = "calendar_sync"
_NOTICE_IDS = UUID("6e0d3c0a-52f1-4c55-9a86-0b7a4c1f2d19")  # name space of delivery ids
ReadSecret = Callable[[str], Awaitable[str | None]]


async def request_sync(connection: Connection, source: str, *, full: bool = False) -> None:
    """Synchronize a calendar as soon as the transaction commits."""
    payload = {"source": source, "full": full, "repeat": False}
    await queue.enqueue(connection, QUEUE, f"{source}:{uuid7()}", payload)


async def declare_accounts(
    database: Database, accounts: Mapping[str, CalendarAccount], now: datetime, interval: timedelta
) -> None:
    """Bring the calendars in line with the configured accounts, and plan their synchronization."""
    async with database.transaction() as connection:
        await store.begin_sync(connection)
        for name, account in accounts.items():
            await store.declare_source(connection, name, account.kind, shared=account.shared)
            await request_sync(connection, name)
            await _plan_next(connection, name, now, interval)
        await store.remove_other_sources(connection, list(accounts))


async def _plan_next(connection: Connection, name: str, now: datetime, interval: timedelta) -> None:
    """Plan one synchronization for the next interval, whoever plans it."""
    number = int(now.timestamp() // interval.total_seconds()) + 1
    payload = {"source": name, "full": False, "repeat": True}
    await queue.enqueue(connection, QUEUE, f"{name}:{number}", payload, delay=interval)


class SyncWorker:
    """Handler of the queue."""

    def __init__(
        self,
        butler: str,
        database: Database,
        clock: Clock,
        zone: str,
        accounts: Mapping[str, CalendarAccount],
        secret: ReadSecret,
        interval: timedelta,
    ) -> None:
        self._butler = butler
        self._database = database
        self._clock = clock
        self._zone = zone
        self._accounts = accounts
        self._secret = secret
        self._interval = interval

    async def process(self, lease: Lease) -> Any:
        name, full = lease.payload["source"], bool(lease.payload.get("full"))
        account = self._accounts.get(name)
        if account is None:
            return {"skipped": "no longer configured"}
        async with self._database.transaction() as connection:
            source = await events.find_source(connection, name)
            if lease.payload.get("repeat"):
                await _plan_next(connection, name, self._clock.now(), self._interval)
        try:
            report = await self.sync(source, account, full=full)
        except ButlersError as error:
            log.warning("calendar sync failed", calendar=name, error=error.message)
            await self._record_failure(source, error)
            return {"error": error.message}
        await self._project()
        return asdict(report)

    async def sync(
        self, source: CalendarSource, account: CalendarAccount, *, full: bool = False
    ) -> SyncReport:
        if account.kind == "ics":
            now = self._clock.now()
            return await sync_feed(self._database, source, account.url, self._zone, now)
        password = await self._secret(account.secret or "")
        if password is None:
            raise CredentialMissing(
                f"the credential {account.secret} is not set",
                hint="run butlers connect caldav again",
            )
        async with DavClient(account.url, account.username, password) as client:
            run = CalendarSync(self._database, source, client, self._clock, self._zone)
            return await run.run(full=full)

    async def _record_failure(self, source: CalendarSource, error: ButlersError) -> None:
        """Store why it failed. A refused login is told to the owner once, until one succeeds."""
        async with self._database.transaction() as connection:
            since = await store.save_failure(connection, source.id, error.message)
            if isinstance(error, CredentialRefused | CredentialMissing):
                hint = f" {error.hint}." if error.hint else ""
                text = f"Your calendar {source.name} fails: {error.message}.{hint}"
                notice = uuid5(_NOTICE_IDS, f"{source.id}:{since}")
                request = DeliveryRequest.to_owner(notice, self._butler, text)
                await queue_delivery(connection, request)

    async def _project(self) -> None:
        projected = 1
        while projected:
            async with self._database.transaction() as connection:
                projected = await events.project_series(connection, self._clock.now())
