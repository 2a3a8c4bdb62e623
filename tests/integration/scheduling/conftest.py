"""Fixtures: real butlers with a settable clock, each in its own database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import pytest

from butlers.config.butler import load_butler_config
from butlers.config.settings import Settings
from butlers.daemon.butler import Butler
from butlers.daemon.phases import PHASES, start_scheduler
from butlers.db.provision import Provisioner
from butlers.domain.caller import CallerKind
from butlers.wire.client import McpClient
from butlers.wire.tokens import FleetKey
from support.clocks import SetClock

T = TypeVar("T")
PATIENCE_S = 60.0
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


async def until(what: str, condition: Callable[[], Awaitable[T | None]]) -> T:
    async with asyncio.timeout(PATIENCE_S):
        while not (found := await condition()):  # noqa: ASYNC110  (it happens in the database)
            await asyncio.sleep(0.01)
        return found
    raise AssertionError(what)


@dataclass
class Home:
    """Folder and database of one butler, which a test starts and stops."""

    folder: Path
    home: Path
    key: FleetKey
    provisioner: Provisioner
    database_name: str
    clock: SetClock
    started: list[Butler] = field(default_factory=list)
    was_stopped: bool = False

    def write(self, *schedules: str, extra: str = "") -> None:
        lines = ["[butler]", 'name = "tester"', "port = 0", 'timezone = "Europe/Berlin"', extra]
        lines += ["[butler.db]", f'name = "{self.database_name}"']
        lines += [f"[[butler.schedule]]\n{schedule}" for schedule in schedules]
        lines += ["[runtime]", 'type = "reflex"']
        (self.folder / "butler.toml").write_text("\n".join(lines))

    async def start(self, *, loop: bool | None = None) -> Butler:
        """Start the butler. By default the first start has no scheduler loop, so that the test decides
        when to tick; a restart has the loop."""
        loop = self.was_stopped if loop is None else loop
        config = load_butler_config(self.folder, Settings(self.home))
        butler = Butler(
            config,
            settings=Settings(self.home),
            key=self.key,
            provisioner=self.provisioner,
            clock=self.clock,
            phases=tuple(phase for phase in PHASES if loop or phase is not start_scheduler),
        )
        await butler.start()
        self.started.append(butler)
        return butler

    async def stop(self) -> None:
        self.was_stopped = True
        for butler in self.started:
            await butler.stop()
        self.started.clear()

    async def restart(self) -> Butler:
        await self.stop()
        return await self.start(loop=False)

    @property
    def butler(self) -> Butler:
        return self.started[-1]

    def owner(self) -> McpClient:
        token = self.key.mint(CallerKind.OWNER, "owner", "tester")
        return McpClient("tester", self.butler.url, lambda: token)

    async def call(self, tool: str, **arguments: Any) -> Any:
        async with self.owner() as client:
            return await client.call(tool, arguments)

    async def rows(self, sql: str, *arguments: Any) -> list[dict[str, Any]]:
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
async def place(
    tmp_path: Path,
    home: Path,
    key: FleetKey,
    provisioner: Provisioner,
    database_name: str,
    clock: SetClock,
    prepared: None,
) -> AsyncIterator[Home]:
    folder = tmp_path / "tester"
    (folder / "skills" / "bench").mkdir(parents=True)
    (folder / "skills" / "bench" / "reflex.toml").write_text(REFLEXES)
    made = Home(folder, home, key, provisioner, database_name, clock)
    made.write()
    yield made
    await made.stop()


@pytest.fixture
async def running(place: Home) -> Home:
    await place.start()
    return place


@pytest.fixture
async def looping(place: Home) -> Home:
    """A butler with a running scheduler loop."""
    await place.start(loop=True)
    return place
