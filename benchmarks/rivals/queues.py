"""Other queues on PostgreSQL, each run by its script on our server."""

from __future__ import annotations

import asyncio
import json
import secrets
from dataclasses import dataclass
from pathlib import Path

import asyncpg

from benchmarks.rivals.package import Package
from butlers.db.embedded import EmbeddedPostgres

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True, slots=True)
class Setting:
    server: EmbeddedPostgres
    items: int
    connections: int
    batch: int
    payload: str


class Rival(Package):
    async def measure(self, python: Path, setting: Setting) -> tuple[float, float]:
        """Return the jobs enqueued and processed per second, in a new database."""
        database = f"rival_{secrets.token_hex(6)}"
        admin = await asyncpg.connect(setting.server.dsn())
        try:
            await admin.execute(f"CREATE DATABASE {database}")
            numbers = (setting.items, setting.connections, setting.batch)
            process = await asyncio.create_subprocess_exec(
                str(python),
                str(HERE / f"{self.name}_run.py"),
                setting.server.dsn(database),
                *(str(number) for number in numbers),
                setting.payload,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            output, errors = await process.communicate()
            if process.returncode != 0:
                raise RuntimeError(f"{self.name} failed:\n{errors.decode()[-2000:]}")
            ingest, work = json.loads(output.decode().splitlines()[-1])
            await admin.execute(f"DROP DATABASE {database} WITH (FORCE)")
            return ingest, work
        finally:
            await admin.close()


RIVALS = (
    Rival("pgqueuer", "1.6.0", ("asyncpg==0.32.0",)),
    Rival("procrastinate", "3.10.0", ("psycopg[binary]==3.3.8", "psycopg-pool==3.3.3")),
)
