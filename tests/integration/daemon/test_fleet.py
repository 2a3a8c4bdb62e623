"""A large fleet in one process, on the embedded server."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import asyncpg
import pytest
from structlog.testing import capture_logs

from butlers.config.butler import ButlerConfig, load_butler_config
from butlers.config.fleet import FleetConfig
from butlers.config.settings import Settings
from butlers.daemon.butler import Butler
from butlers.daemon.fleet import Fleet
from butlers.db import database
from butlers.db.embedded import EmbeddedPostgres
from butlers.queue.worker import SCAN_S
from support.waiting import until

BUTLERS = 50
MOST_IDLE = 3  # connections of one butler: its listener, and those of its pool
CONFIG = """
[butler]
name = "{name}"
port = 0

[butler.db]
name = "butlers"
schema = "{name}"

[runtime]
type = "reflex"
"""
CONNECTIONS = """
SELECT split_part(application_name, ':', 2) FROM pg_stat_activity
WHERE backend_type = 'client backend' AND application_name LIKE 'butlers:b%'
"""


def write_butler(folder: Path, name: str, settings: Settings) -> ButlerConfig:
    (folder / name).mkdir()
    (folder / name / "butler.toml").write_text(CONFIG.format(name=name))
    return load_butler_config(folder / name, settings)


async def connections_by_butler(home: Path) -> Counter[str]:
    connection = await asyncpg.connect(EmbeddedPostgres(home).dsn("butlers"))
    try:
        return Counter(row[0] for row in await connection.fetch(CONNECTIONS))
    finally:
        await connection.close()


async def test_fifty_butlers_start_at_once_and_idle_on_few_connections(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Longer than the pause between two scans, which would otherwise be what closes connections.
    monkeypatch.setattr(database, "UNUSED_S", SCAN_S * 1.5)
    settings = Settings(home)
    configs = [write_butler(tmp_path, f"b{number}", settings) for number in range(BUTLERS)]
    fleet = Fleet(configs, settings, FleetConfig())
    ready: asyncio.Future[Sequence[Butler]] = asyncio.get_running_loop().create_future()
    with capture_logs() as logged:
        serving = asyncio.create_task(fleet.run(ready.set_result))
        try:
            await asyncio.wait({ready, serving}, return_when="FIRST_COMPLETED")
            assert ready.done(), serving.exception()
            assert [one.config.name for one in ready.result() if not one.is_ready] == []
            assert fleet.failures == []

            async def is_idle() -> bool:
                used = await connections_by_butler(home)
                return len(used) == BUTLERS and max(used.values()) <= MOST_IDLE

            await until("the pools to shrink", is_idle)
        finally:
            fleet.stop()
            await serving
    assert [one for one in logged if one["event"] == "start is repeated"] == []
