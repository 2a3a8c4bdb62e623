"""A butler whose clock the test moves, in a database of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from butlers.daemon.butler import Butler
from butlers.daemon.phases import PHASES, start_scheduler
from butlers.db.provision import Provisioner
from butlers.wire.tokens import FleetKey
from support.clocks import SetClock
from support.in_process import InProcessButler
from support.waiting import until

REFLEXES = r"""
version = 1

[[reflex]]
name = "ping"
pattern = '(?i)ping'
reply = "pong"

[[reflex]]
name = "remind"
pattern = '(?i)remind me to (?P<what>.+)'
tool = "remind"
reply = "I will."
arguments = { message = "{what}", in_minutes = 10 }
"""


@dataclass
class ScheduledButler(InProcessButler):
    """A butler with schedules; a test starts and stops it as often as it likes."""

    database_name: str = field(kw_only=True)
    clock: SetClock = field(kw_only=True)
    was_stopped: bool = False

    def write(self, *schedules: str, extra: str = "") -> None:
        lines = ["[butler]", 'name = "tester"', "port = 0", 'timezone = "Europe/Berlin"', extra]
        lines += ["[butler.db]", f'name = "{self.database_name}"']
        lines += [f"[[butler.schedule]]\n{schedule}" for schedule in schedules]
        lines += ["[runtime]", 'type = "reflex"']
        (self.directory / "butler.toml").write_text("\n".join(lines))

    async def start(self, *, loop: bool | None = None) -> Butler:
        """Start it without its loop the first time, so that the test alone decides when it ticks; a butler
        that comes back after a stop ticks by itself, as a real one does."""
        loop = self.was_stopped if loop is None else loop
        butler = self.make(
            clock=self.clock,
            phases=tuple(phase for phase in PHASES if loop or phase is not start_scheduler),
        )
        await butler.start()
        return butler

    async def stop(self) -> None:
        self.was_stopped = True
        for butler in self.butlers:
            await butler.stop()
        self.butlers.clear()

    async def restart(self) -> Butler:
        await self.stop()
        return await self.start(loop=False)

    async def call(self, tool: str, **arguments: Any) -> Any:
        async with self.owner() as client:
            return await client.call(tool, arguments)

    async def rows(self, sql: str, *arguments: Any) -> list[dict[str, Any]]:
        """Read as the butler itself, which decodes JSON."""
        async with self.butler.database.transaction() as connection:
            return [dict(row) for row in await connection.fetch(sql, *arguments)]

    async def tasks(self) -> dict[str, dict[str, Any]]:
        return {row["name"]: row for row in await self.rows("SELECT * FROM scheduled_tasks")}

    async def runs(self, name: str) -> list[dict[str, Any]]:
        return await self.rows(
            "SELECT * FROM schedule_runs WHERE task_name = $1 ORDER BY due_at", name
        )

    async def ended(self, name: str, count: int = 1) -> list[dict[str, Any]]:
        """Return a task's runs once ``count`` of them have an outcome."""

        async def look() -> list[dict[str, Any]] | None:
            found = [row for row in await self.runs(name) if row["outcome"]]
            return found if len(found) >= count else None

        return await until(f"{count} runs of {name}", look)

    async def sent(self) -> list[dict[str, Any]]:
        """Return the payloads of queued notifications."""
        found = await self.rows("SELECT payload FROM queue_items WHERE queue = 'notify'")
        return [row["payload"] for row in found]


@pytest.fixture
def clock() -> SetClock:
    return SetClock(datetime(2026, 5, 13, 6, 0, 30, tzinfo=UTC))  # 08:00:30 in Berlin


@pytest.fixture
async def scheduled(
    tmp_path: Path,
    home: Path,
    key: FleetKey,
    provisioner: Provisioner,
    database_name: str,
    clock: SetClock,
    prepared: None,
) -> AsyncIterator[ScheduledButler]:
    folder = tmp_path / "tester"
    (folder / "skills" / "bench").mkdir(parents=True)
    (folder / "skills" / "bench" / "reflex.toml").write_text(REFLEXES)
    made = ScheduledButler(folder, home, key, provisioner, database_name=database_name, clock=clock)
    made.write()
    yield made
    await made.stop()


@pytest.fixture
async def running(scheduled: ScheduledButler) -> ScheduledButler:
    await scheduled.start()
    return scheduled


@pytest.fixture
async def looping(scheduled: ScheduledButler) -> ScheduledButler:
    """A butler with a running scheduler loop."""
    await scheduled.start(loop=True)
    return scheduled
