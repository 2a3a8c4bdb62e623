"""A first sync of an address book compared with the bare client fetching the same cards from the same server.

Ours compares every card with the known people and stores it with its history; the baseline fetches and
parses the cards in the same requests and drops them. The server is radicale, in a process of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import sys
import time

from benchmarks.helpers import ROOT, new_home
from benchmarks.report import Measured, report
from butlers.config.overrides import shipped_roster
from butlers.db.database import Database, Login
from butlers.db.embedded import EmbeddedPostgres
from butlers.db.migrations import butler_chains, find_chain, migrate, shipped_versions
from butlers.db.provision import ButlerSchema, Provisioner
from butlers.domain.clock import SystemClock
from butlers.modules.contacts import accounts
from butlers.modules.contacts.book import ContactBook
from butlers.modules.contacts.sources.carddav import CarddavSource
from butlers.modules.contacts.sync import ContactSync
from butlers.modules.registry import load_module
from butlers.wire.tokens import FleetKey

sys.path.insert(0, str(ROOT / "tests"))  # the CardDAV server of the tests

from support.radicale import PASSWORD, USER, running_radicale, vcard

BUTLER = "relationship"
TIME_BOUND = 1.5


def run(options: argparse.Namespace) -> None:
    count = options.contacts
    with running_radicale() as server, new_home() as home, EmbeddedPostgres(home) as postgres:
        book = server.make_address_book("people")
        server.put_all(book, {str(number): _card(number) for number in range(count)})
        asyncio.run(_fetch(book))  # the server fills its caches
        plain = asyncio.run(_fetch(book))
        first, again = asyncio.run(_sync(postgres, book, count))
    lines = [
        Measured("first sync", first, "s", plain, at_most=TIME_BOUND),
        Measured("contacts per second", count / first, "/s", count / plain),
        Measured("sync without changes", again, "s", plain),
    ]
    report("contacts", lines, f"{count:,} contacts of a CardDAV server, to the bare client")


def _card(number: int) -> str:
    return vcard(
        f"u{number}",
        f"Person Number{number}",
        f"TEL;TYPE=CELL:+49170{number:07d}",
        f"EMAIL;TYPE=HOME:p{number}@example.org",
        f"ADR;TYPE=HOME:;;Main St {number};Berlin;;10115;Germany",
        f"BDAY:19{number % 90 + 10}-05-{number % 28 + 1:02d}",
    )


async def _password() -> str:
    return PASSWORD


async def _fetch(book: str) -> float:
    """Return the seconds in which the bare client fetches and parses all cards."""
    began = time.perf_counter()
    async for _ in CarddavSource(book, USER, _password).pull(None, {}):
        pass
    return time.perf_counter() - began


async def _sync(postgres: EmbeddedPostgres, book: str, count: int) -> tuple[float, float]:
    """Return the seconds of the first synchronization, and of one without changes."""
    people = load_module(shipped_roster() / BUTLER, BUTLER, BUTLER)
    assert isinstance(people, ContactBook)
    database = await _open_database(postgres)
    try:
        sync = ContactSync(database, SystemClock(), people, "DE")
        source = CarddavSource(book, USER, _password)
        return await _run(database, sync, source, count), await _run(database, sync, source, 0)
    finally:
        await database.close()


async def _open_database(postgres: EmbeddedPostgres) -> Database:
    admin = Login(postgres.dsn(), "postgres", None, "postgres")
    provisioner = Provisioner(admin, FleetKey(secrets.token_bytes(32)))
    login = await provisioner.provision(
        ButlerSchema(BUTLER, f"bench_{secrets.token_hex(4)}", BUTLER)
    )
    versions = shipped_versions()
    chain = find_chain("contacts", versions)
    assert chain is not None
    await migrate(login, [*butler_chains(BUTLER, versions), chain])
    return await Database.open(login, BUTLER)


async def _run(database: Database, sync: ContactSync, source: CarddavSource, new: int) -> float:
    async with database.transaction() as connection:
        await accounts.keep_accounts(connection, [("carddav", "bench")])
        account = await accounts.find_account(connection, "carddav", "bench")
    assert account is not None
    began = time.perf_counter()
    done = await sync.run(account, source)
    assert done.added == new, done
    return time.perf_counter() - began
