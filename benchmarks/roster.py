"""List, search and summary tools of domain butlers at 100,000 rows, compared with 100 rows."""

from __future__ import annotations

import argparse
import asyncio
import time
from statistics import median

from benchmarks.domain_cases import AT, NOTE, DomainCase, ToolCase
from benchmarks.helpers import ROOT, new_home, open_database
from benchmarks.money_people import FINANCE, RELATIONSHIP
from benchmarks.report import Measured, report
from butlers.db.database import Database
from butlers.db.embedded import EmbeddedPostgres
from butlers.modules.base import Module
from butlers.modules.registry import load_module
from butlers.modules.testing import module_context
from butlers.tools.declaration import spec_of

FEW, MANY = 100, 100_000
ROUNDS = 15
MAX_RATIO = 2.0


HEALTH = DomainCase(
    "health",
    (
        f"""INSERT INTO measurements
            (id, type, value, unit, standard_value, standard_unit, measured_at, notes)
        SELECT gen_random_uuid(), 'weight', 80 + n % 7, 'kg', 80 + n % 7, 'kg', {AT}, {NOTE}
        FROM generate_series(1, $1) AS n""",
        f"""INSERT INTO doses (id, medication_id, medication, taken_at, notes)
        SELECT gen_random_uuid(), (SELECT id FROM medications), 'metformin', {AT}, {NOTE}
        FROM generate_series(1, $1) AS n""",
        f"""INSERT INTO symptoms (id, name, severity, occurred_at, notes)
        SELECT gen_random_uuid(), 'headache', 1 + n % 10, {AT}, {NOTE} FROM generate_series(1, $1) AS n""",
        f"""INSERT INTO meals (id, meal, description, kcal, eaten_at, notes)
        SELECT gen_random_uuid(), 'lunch', 'pasta', 500, {AT}, {NOTE} FROM generate_series(1, $1) AS n""",
    ),
    (
        ToolCase("measurement_latest", {"type": "weight"}),
        ToolCase("measurement_history", {"type": "weight"}),
        ToolCase("measurement_statistics", {"type": "weight", "period": "last 28 days"}),
        ToolCase("measurement_statistics", {"type": "weight", "period": "all"}, served=False),
        ToolCase("medication_list"),
        ToolCase("doses_due"),
        ToolCase("medication_adherence", {"period": "last 28 days"}),
        ToolCase("symptom_statistics", {"period": "last 28 days"}),
        ToolCase("nutrition_statistics", {"period": "last 28 days"}),
        ToolCase("health_summary", {"period": "last 7 days"}),
        ToolCase("health_find", {"kind": "symptom"}),
        ToolCase("health_find", {"query": "c4ca4238"}),
    ),
    ("measurements", "doses", "symptoms", "meals", "medications"),
    (
        """INSERT INTO medications (id, name, times, starts_on)
        VALUES (gen_random_uuid(), 'metformin', '{08:00,20:00}', current_date - 60)""",
    ),
)

TRAVEL = DomainCase(
    "travel",
    (
        f"""INSERT INTO trips (id, name, destination, starts_on, ends_on, notes)
        SELECT gen_random_uuid(), 'Trip ' || n, 'City ' || n,
            CASE WHEN n <= 20 THEN current_date + n * 10 ELSE ({AT})::date END,
            CASE WHEN n <= 20 THEN current_date + n * 10 + 3 ELSE ({AT})::date END, {NOTE}
        FROM generate_series(1, $1) AS n""",
        """INSERT INTO legs (id, trip_id, mode, title, number, origin, origin_zone, departs_local, departs_at)
        SELECT gen_random_uuid(), id, 'train', 'train ' || name, name, 'Berlin', 'Europe/Berlin',
            starts_on + time '09:00', (starts_on + time '09:00') AT TIME ZONE 'UTC'
        FROM trips WHERE $1::int > 0""",
        """INSERT INTO stays (id, trip_id, name, zone, check_in, check_out)
        SELECT gen_random_uuid(), id, 'Hotel ' || name, 'UTC', starts_on, starts_on + 1
        FROM trips WHERE $1::int > 0""",
        """INSERT INTO documents (id, kind, number, expires_on)
        SELECT gen_random_uuid(), 'visa', n::text,
            CASE WHEN n <= 20 THEN current_date + n ELSE current_date + 400 + n % 1000 END
        FROM generate_series(1, $1) AS n""",
        """INSERT INTO tasks (id, trip_id, list, title)
        SELECT gen_random_uuid(), id, 'packing', 'socks' FROM trips WHERE $1::int > 0""",
    ),
    (
        ToolCase("trip_list"),
        ToolCase("trip_list", {"status": "planned"}),
        ToolCase("trip_show"),
        ToolCase("travel_next"),
        ToolCase("travel_upcoming"),
        ToolCase("travel_statistics", {"period": "last 20 days"}),
        ToolCase("checklist_show"),
        ToolCase("document_list", {"expiring_within_days": 60}),
        ToolCase("travel_find", {"kind": "stay"}),
        ToolCase("travel_find", {"query": "c4ca4238"}),
    ),
    ("trips", "legs", "stays", "documents", "tasks"),
)

CASES = (HEALTH, TRAVEL, FINANCE, RELATIONSHIP)


def run(options: argparse.Namespace) -> None:
    with new_home() as home, EmbeddedPostgres(home) as server:
        lines = [line for case in CASES for line in asyncio.run(_measure(server, case))]
    note = (
        f"a tool at {MANY:,} rows per table; baseline = the same call at {FEW} rows,"
        f" median of {ROUNDS} calls each, alternately"
    )
    report("roster", lines, note)


async def _measure(server: EmbeddedPostgres, case: DomainCase) -> list[Measured]:
    few = await open_database(server, case.butler, name=f"few_{case.butler}")
    many = await open_database(server, case.butler, name=f"many_{case.butler}")
    module = load_module(ROOT / "roster" / case.butler, case.butler, case.butler)
    try:
        await _fill(few, case, FEW)
        await _fill(many, case, MANY)
        return [await _compare(module, few, many, call) for call in case.calls]
    finally:
        await few.close()
        await many.close()


async def _fill(database: Database, case: DomainCase, rows: int) -> None:
    async with database.transaction() as connection:
        for table in case.tables:  # without the history of changes, which has its own cost
            await connection.execute(f"ALTER TABLE {table} DISABLE TRIGGER USER")
        for statement in case.once:
            await connection.execute(statement)
        for statement in case.rows:
            await connection.execute(statement, rows)
        for table in case.tables:
            await connection.execute(f"ALTER TABLE {table} ENABLE TRIGGER USER")
    await database.pool.execute("VACUUM ANALYZE")


async def _compare(module: Module, few: Database, many: Database, case: ToolCase) -> Measured:
    """Measure both alternately, so that machine load affects both equally."""
    took: dict[Database, list[float]] = {few: [], many: []}
    for _ in range(ROUNDS + 2):
        for database in (few, many):
            took[database].append(await _call(module, database, case))
    before, after = (median(took[database][2:]) * 1000 for database in (few, many))
    return Measured(case.title, after, "ms", before, MAX_RATIO if case.served else None)


async def _call(module: Module, database: Database, case: ToolCase) -> float:
    function = next(tool for tool in module.tools if spec_of(tool).name == case.tool)
    async with database.transaction() as connection:
        context = module_context(module, connection=connection)
        started = time.perf_counter()
        await function(context, **case.arguments)
        return time.perf_counter() - started
