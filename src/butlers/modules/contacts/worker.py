"""The queue of synchronizations: one item per address book and interval, planned by the one before it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid5

import structlog

from butlers.db.database import Connection, Database
from butlers.domain.clock import Clock, uuid7
from butlers.domain.delivery import DeliveryRequest
from butlers.domain.errors import ButlersError, CredentialRefused
from butlers.modules.contacts import accounts
from butlers.modules.contacts.accounts import SourceAccount
from butlers.modules.contacts.sources.base import ContactSource
from butlers.modules.contacts.sync import ContactSync, SyncCounts, TooManyRemovals
from butlers.queue import leased_queue as queue
from butlers.queue.leased_queue import Lease
from butlers.queue.outbox import queue_delivery
from butlers.queue.worker import FinishWith
from butlers.secrets.credentials import CredentialMissing

log = structlog.get_logger()

QUEUE = "contacts"
_NOTICE_IDS = UUID("0f3d7a52-6a57-4d1c-9f1e-6f2f35f1a9c4")  # name space of delivery ids

OpenSource = Callable[[str, str], ContactSource | None]
Finish = Callable[[Connection], Awaitable[object]]


async def plan_sync(
    connection: Connection, kind: str, name: str, now: datetime, interval: timedelta
) -> bool:
    """Enqueue the synchronization of the next interval. Once per interval."""
    slot = int(now.timestamp() // interval.total_seconds()) + 1
    due = datetime.fromtimestamp(slot * interval.total_seconds(), UTC)
    return await _enqueue(connection, f"{kind}:{name}:{slot}", kind, name, delay=due - now)


async def request_sync(
    connection: Connection, kind: str, name: str, *, may_remove: bool = False
) -> None:
    """Enqueue a synchronization that is due now."""
    await _enqueue(connection, f"{kind}:{name}:{uuid7()}", kind, name, may_remove=may_remove)


async def _enqueue(
    connection: Connection,
    key: str,
    kind: str,
    name: str,
    *,
    delay: timedelta = timedelta(0),
    may_remove: bool = False,
) -> bool:
    payload = {"kind": kind, "name": name, "may_remove": may_remove}
    # No lane: a planned item would hold back one that is due now. The queue has one worker anyway.
    return await queue.enqueue(connection, QUEUE, key, payload, delay=delay)


class ContactSyncWorker:
    """Handler of the queue items that synchronize an address book."""

    def __init__(
        self,
        butler: str,
        database: Database,
        clock: Clock,
        sync: ContactSync,
        open_source: OpenSource,
        interval: timedelta,
    ) -> None:
        self._butler = butler
        self._database = database
        self._clock = clock
        self._sync = sync
        self._open_source = open_source
        self._interval = interval

    async def process(self, lease: Lease) -> Any:
        """Synchronize the address book of the item. A failure is stored, and told if the owner can act."""
        kind, name = lease.payload["kind"], lease.payload["name"]
        source = self._open_source(kind, name)
        async with self._database.transaction() as connection:
            account = await accounts.find_account(connection, kind, name)
        if account is None or source is None:
            return {"status": "disconnected"}
        try:
            counts = await self._sync.run(
                account, source, may_remove=bool(lease.payload.get("may_remove"))
            )
        except ButlersError as error:
            log.warning("contacts not synchronized", account=account.label, error=str(error))
            return self._failed(account, error)
        return self._done(account, counts)

    def _done(self, account: SourceAccount, counts: SyncCounts) -> FinishWith:
        async def write(connection: Connection) -> None:
            if counts.to_confirm:
                await self._ask_to_confirm(connection, account, counts.to_confirm)
            await self._plan_next(connection, account)

        return FinishWith({"status": "ok", **counts.as_dict()}, write)

    def _failed(self, account: SourceAccount, error: ButlersError) -> FinishWith:
        needs_owner = isinstance(error, CredentialRefused | CredentialMissing | TooManyRemovals)

        async def write(connection: Connection) -> None:
            now = self._clock.now()
            told = now if needs_owner else None
            await accounts.keep_error(connection, account.account_id, error.message, told)
            if needs_owner and account.told_at is None:
                hint = f" {error.hint}." if error.hint else ""
                text = f"Your address book {account.label} fails: {error.message}.{hint}"
                await self._tell(connection, uuid7(), text)
            await self._plan_next(connection, account)

        return FinishWith({"status": "failed", "error": error.message}, write)

    async def _plan_next(self, connection: Connection, account: SourceAccount) -> None:
        now = self._clock.now()
        await plan_sync(connection, account.kind, account.name, now, self._interval)

    async def _ask_to_confirm(
        self, connection: Connection, account: SourceAccount, count: int
    ) -> None:
        people = "1 contact has" if count == 1 else f"{count} contacts have"
        text = (
            f"{people} the same name as people I know, in your address book {account.label}."
            " Say “contacts to confirm” to see and decide."
        )
        day = f"{account.account_id}:{self._clock.now().date()}"
        await self._tell(connection, uuid5(_NOTICE_IDS, day), text)  # at most once a day

    async def _tell(self, connection: Connection, delivery_id: UUID, text: str) -> None:
        await queue_delivery(connection, DeliveryRequest.to_owner(delivery_id, self._butler, text))
