"""A real CalDAV server, and a General butler that is connected to it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import pytest

from butlers.modules.calendar import store
from butlers.modules.calendar.config import CalendarAccount
from butlers.modules.calendar.store import CalendarSource
from butlers.modules.calendar.sync.dav import DavClient
from butlers.modules.calendar.sync.engine import CalendarSync, SyncReport
from butlers.modules.calendar.sync.worker import declare_accounts
from support.in_process import MakeButler
from support.radicale import PASSWORD, USER, running_radicale
from support.radicale_calendar import RadicaleCalendar
from support.roster_butler import NOON, RosterButler, start_roster_butler


@pytest.fixture(scope="module")
def radicale_process() -> Iterator[RadicaleCalendar]:
    with running_radicale() as server:
        yield RadicaleCalendar(server)


@pytest.fixture
def radicale(radicale_process: RadicaleCalendar) -> RadicaleCalendar:
    """The server with an empty calendar."""
    for event in radicale_process.second_client().events():
        event.delete()
    return radicale_process


@dataclass
class ConnectedGeneral:
    """General with a CalDAV calendar "home", synchronized when the test says so."""

    general: RosterButler
    server: RadicaleCalendar
    client: DavClient
    source: CalendarSource

    async def sync(self, *, full: bool = False) -> SyncReport:
        butler = self.general.butler.butler
        run = CalendarSync(butler.database, self.source, self.client, butler.clock, "Europe/Berlin")
        return await run.run(full=full)


@pytest.fixture
async def connected(
    make_butler: MakeButler, radicale: RadicaleCalendar
) -> AsyncIterator[ConnectedGeneral]:
    general = await start_roster_butler(make_butler, "general")
    database = general.butler.butler.database
    account = CalendarAccount(kind="caldav", url=radicale.url, username=USER, secret="CALDAV_HOME")
    config = next(m.config for m in general.butler.butler.modules if m.name == "calendar")
    await declare_accounts(database, {"home": account}, NOON, config.interval)
    async with database.transaction() as connection:
        source = await store.find_source(connection, "home")
    async with DavClient(radicale.url, USER, PASSWORD) as client:
        yield ConnectedGeneral(general, radicale, client, source)
