"""The email connector: new mail of a mailbox by IDLE or polling, and its history once.

The cursor holds, per folder, UIDVALIDITY, the last UID that was handed in, the UID at which live mail begins,
and the day of the last mail. If the server renumbers a folder, the mail since that day is fetched again; what
was handed in before is recognized by its content.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import date, timedelta
from functools import partial
from typing import Any

import structlog

from butlers.channels.base import InboundContext
from butlers.channels.email.config import EmailInbound
from butlers.channels.email.imap import FolderState, ImapConnection, ImapMail
from butlers.channels.email.oauth import LoginSource
from butlers.channels.email.parser import EMAIL, FetchedMail, parse_mail
from butlers.channels.polling import Cursor, PolledHistory, PolledMessage, PollingConnector

log = structlog.get_logger()

BATCH = 100
HISTORY_BATCH = 250
HISTORY_WINDOW = (
    1_000  # UIDs that one search of the history covers, so that it does not grow with the mailbox
)
IDLE_S = 240.0  # many networks forget a connection that is silent for five minutes
RENUMBERED_DAYS = 2  # before the last mail, fetched again after a change of UIDVALIDITY


Scan = tuple[ImapConnection, list[PolledMessage | PolledHistory]]


class EmailSource:
    kind = EMAIL

    def __init__(self, name: str, account: EmailInbound, context: InboundContext) -> None:
        self.endpoint = f"{EMAIL}:{name}"
        self._name = name
        self._account = account
        self._context = context
        self._logins = LoginSource(account, context.secret)
        self._connection: ImapConnection | None = None
        self._login: Any = None
        self._ahead: tuple[Cursor, asyncio.Task[Scan]] | None = None

    async def poll(self, cursor: Cursor | None) -> Sequence[PolledMessage | PolledHistory]:
        state: Cursor = dict(cursor or {})
        connection, found = await self._next(state)
        if not found:
            await self._wait(connection)
        elif isinstance(found[-1], PolledHistory) and found[-1].envelopes:
            # While one batch of the history is stored, the next one is fetched.
            after = found[-1].cursor
            self._ahead = (after, asyncio.create_task(self._scan(after)))
        return found

    async def _next(self, state: Cursor) -> Scan:
        """Return what is new after a position: fetched ahead for this position, or now."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead[0] == state:
            return await ahead[1]
        if ahead is not None:
            await asyncio.gather(ahead[1], return_exceptions=True)
        return await self._scan(state)

    async def _scan(self, state: Cursor) -> Scan:
        connection = await self._connected()
        for folder in reversed(self._account.folders):  # the first stays open, for IDLE
            found = await connection.run(partial(self._look, connection, folder, state))
            if found:
                return connection, found
        return connection, []

    async def _connected(self) -> ImapConnection:
        login = await self._logins.current()
        if self._connection is None or login != self._login:
            if self._connection is not None:
                await self._connection.run(self._connection.close)
            self._connection, self._login = ImapConnection(self._account, login), login
        return self._connection

    async def _wait(self, connection: ImapConnection) -> None:
        several = len(self._account.folders) > 1
        seconds = min(IDLE_S, self._account.poll_s) if several else IDLE_S
        if not await connection.run(lambda: connection.idle(seconds)):
            await asyncio.sleep(self._account.poll_s)

    async def close(self) -> None:
        if self._ahead is not None:
            self._ahead[1].cancel()
            await asyncio.gather(self._ahead[1], return_exceptions=True)
        if self._connection is not None:
            self._connection.abort()

    # -- in a thread --------------------------------------------------------------------------------

    def _look(
        self, connection: ImapConnection, folder: str, state: Cursor
    ) -> list[PolledMessage | PolledHistory]:
        """Return the next messages of a folder, or its first position, or nothing."""
        opened = connection.open_folder(folder)
        place = state.get(folder)
        if place is None:
            return [PolledHistory((), {**state, folder: self._start(opened)})]
        if place["validity"] != opened.validity:
            log.warning("folder was renumbered", mailbox=self._name, folder=folder)
            return [PolledHistory((), {**state, folder: _restart(connection, place, opened)})]
        if place["uid"] + 1 < place["live"]:
            return self._history(connection, folder, place, state)
        uids = connection.search(place["uid"] + 1)[:BATCH]
        mails = connection.fetch(uids, self._account.max_mb * 2**20) if uids else []
        return [
            PolledMessage(
                parse_mail(self._name, self._account, self._fetched(folder, place, mail)),
                {**state, folder: _behind(place, mail)},
            )
            for mail in mails
        ] or _skip_vanished(uids, folder, place, state)

    def _start(self, opened: FolderState) -> dict[str, Any]:
        today = self._context.clock.now().date()
        days = self._account.history_days
        return {
            "validity": opened.validity,
            "uid": 0 if days else opened.next_uid - 1,
            "live": opened.next_uid,
            "since": str(today - timedelta(days=days)),
            "day": str(today),
        }

    def _history(
        self, connection: ImapConnection, folder: str, place: dict[str, Any], state: Cursor
    ) -> list[PolledMessage | PolledHistory]:
        since = date.fromisoformat(place["since"])
        last = min(place["uid"] + HISTORY_WINDOW, place["live"] - 1)
        uids = connection.search(place["uid"] + 1, last, since)[:HISTORY_BATCH]
        mails = connection.fetch(uids, self._account.max_mb * 2**20) if uids else []
        if not mails:
            return [PolledHistory((), {**state, folder: {**place, "uid": last}})]
        envelopes = tuple(
            parse_mail(self._name, self._account, self._fetched(folder, place, mail), history=True)
            for mail in mails
        )
        return [PolledHistory(envelopes, {**state, folder: {**place, "uid": mails[-1].uid}})]

    def _fetched(self, folder: str, place: dict[str, Any], mail: ImapMail) -> FetchedMail:
        fallback = f"<{place['validity']}.{mail.uid}@{self._name}.{folder}>"
        return FetchedMail(mail.source, mail.size, fallback, mail.received_at, mail.too_large)


def _behind(place: dict[str, Any], mail: ImapMail) -> dict[str, Any]:
    return {**place, "uid": mail.uid, "day": str(mail.received_at.date())}


def _skip_vanished(
    uids: Sequence[int], folder: str, place: dict[str, Any], state: Cursor
) -> list[PolledMessage | PolledHistory]:
    """Return the position behind mail that was moved away between search and fetch."""
    if not uids:
        return []
    return [PolledHistory((), {**state, folder: {**place, "uid": uids[-1]}})]


def _restart(
    connection: ImapConnection, place: dict[str, Any], opened: FolderState
) -> dict[str, Any]:
    """Return the position after a renumbering: before the mail of the last days."""
    since = date.fromisoformat(place["day"]) - timedelta(days=RENUMBERED_DAYS)
    recent = connection.search(1, None, since)
    first = recent[0] if recent else opened.next_uid
    return {**place, "validity": opened.validity, "uid": first - 1, "live": first}


async def run_mailbox(name: str, account: EmailInbound, context: InboundContext) -> None:
    for address in account.owner_addresses:
        await context.set_owner_address(EMAIL, address.strip().casefold(), True)
    source = EmailSource(name, account, context)
    connector = PollingConnector(
        source, context.inbox, context.clock, tell_owner=context.tell_owner
    )
    try:
        await connector.run()
    finally:
        await source.close()
