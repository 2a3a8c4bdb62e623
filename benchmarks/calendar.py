"""Window query of the calendar at 100,000 events and 5,000 series, compared with 1,000 events."""

from __future__ import annotations

import argparse
import asyncio
import secrets
import time
from datetime import UTC, datetime, timedelta
from statistics import median
from uuid import UUID
from zoneinfo import ZoneInfo

from benchmarks.helpers import new_home
from benchmarks.report import Measured, report
from butlers.db.database import Database, Login
from butlers.db.embedded import EmbeddedPostgres
from butlers.db.migrations import Chain, butler_chains, migrate, shipped_versions
from butlers.db.provision import ButlerSchema, Provisioner
from butlers.domain.clock import uuid7
from butlers.modules.calendar import store
from butlers.modules.calendar.model import CalendarEvent, Window
from butlers.wire.tokens import FleetKey

ROUNDS = 25
MAX_RATIO = 1.3
FEW, MANY = (950, 50), (100_000, 5_000)  # single events, series
SHOWN = 50  # single events, and weekly series, in the measured week
ZONE = ZoneInfo("Europe/Berlin")


def run(options: argparse.Namespace) -> None:
    with new_home() as home, EmbeddedPostgres(home) as server:
        lines = asyncio.run(_measure(server))
    note = (
        f"one week at {MANY[0]:,} events and {MANY[1]:,} endless series; baseline = the same answer at"
        f" {sum(FEW):,} events; median of {ROUNDS} calls each, alternately"
    )
    report("calendar", lines, note)


async def _measure(server: EmbeddedPostgres) -> list[Measured]:
    monday = datetime(2026, 5, 4, tzinfo=UTC)
    few, many = await _open(server, "few"), await _open(server, "many")
    try:
        await _fill(few, *FEW, monday)
        await _fill(many, *MANY, monday)
        window = Window(monday, monday + timedelta(days=7), ZONE)
        before, after = await _compare(few, many, window)
        return [Measured("events of a week", after, "ms", before, MAX_RATIO)]
    finally:
        await few.close()
        await many.close()


async def _compare(few: Database, many: Database, window: Window) -> tuple[float, float]:
    """Measure both alternately, so that machine load affects both equally."""
    took: dict[Database, list[float]] = {few: [], many: []}
    found: dict[Database, int] = {}
    for _ in range(ROUNDS + 2):
        for database in (few, many):
            async with database.transaction() as connection:
                started = time.perf_counter()
                found[database] = len(await store.occurrences_in(connection, window))
                took[database].append((time.perf_counter() - started) * 1000)
    if found[few] != found[many]:
        raise RuntimeError(f"the answers differ: {found[few]} and {found[many]} events")
    return median(took[few][2:]), median(took[many][2:])


async def _open(server: EmbeddedPostgres, name: str) -> Database:
    admin = Login(server.dsn(), "postgres", None, "postgres")
    provisioner = Provisioner(admin, FleetKey(secrets.token_bytes(32)))
    login = await provisioner.provision(ButlerSchema("general", f"bench_{name}", None))
    versions = shipped_versions()
    chains = [*butler_chains("general", versions), Chain("calendar", versions / "calendar")]
    await migrate(login, chains)
    return await Database.open(login, "general")


async def _fill(database: Database, singles: int, series: int, monday: datetime) -> None:
    async with database.transaction() as connection:
        source = (await store.find_source(connection, store.LOCAL)).id
        # Without the history of changes, which has its own cost.
        await connection.execute("ALTER TABLE calendar_events DISABLE TRIGGER keep_record_change")
        await store.save_events(connection, _singles(source, singles, monday))
        await store.save_events(connection, _series(source, series, monday))
        await connection.execute("ALTER TABLE calendar_events ENABLE TRIGGER keep_record_change")
        while await store.project_series(connection, monday):
            pass
    await database.pool.execute("VACUUM ANALYZE")


def _singles(source: UUID, count: int, monday: datetime) -> list[CalendarEvent]:
    """Return events of which the first lie in the measured week, the others months before it."""
    return [
        _event(source, monday + timedelta(hours=n if n < SHOWN else -2000 - n))
        for n in range(count)
    ]


def _series(source: UUID, count: int, monday: datetime) -> list[CalendarEvent]:
    """Return weekly series in the measured week, and yearly ones (birthdays) at other times."""
    weekly = [
        _event(source, monday + timedelta(hours=n, days=-70), "FREQ=WEEKLY") for n in range(SHOWN)
    ]
    yearly = [
        _event(source, monday + timedelta(days=20 + n % 300 - 3 * 365), "FREQ=YEARLY")
        for n in range(count - SHOWN)
    ]
    return [*weekly, *yearly]


def _event(source: UUID, start: datetime, rule: str | None = None) -> CalendarEvent:
    local = start.replace(tzinfo=None)
    return CalendarEvent(
        id=uuid7(),
        source_id=source,
        uid=str(uuid7()),
        title="event",
        start_local=local,
        end_local=local + timedelta(hours=1),
        zone=str(ZONE),
        rule=rule,
    )
