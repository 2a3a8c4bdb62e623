"""Installs each rival, pinned, into a venv outside the clone, and runs its script on our server."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import asyncpg

from butlers.store.embedded import EmbeddedPostgres

HERE = Path(__file__).resolve().parent
PATIENCE_S = 600


@dataclass(frozen=True, slots=True)
class Setting:
    server: EmbeddedPostgres
    items: int
    connections: int
    batch: int
    payload: str


@dataclass(frozen=True, slots=True)
class Rival:
    name: str
    version: str
    needs: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.name} {self.version}"

    def python(self) -> Path | None:
        """The interpreter of its venv, made on first use; None where it can not be had."""
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        folder = cache / "butlers-bench" / f"{self.name}-{self.version}"
        python = folder / "bin" / "python"
        if not (folder / "installed").exists():
            pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
            pins = [f"{self.name}=={self.version}", *self.needs]
            try:
                for step in ([sys.executable, "-m", "venv", str(folder)], [*pip, *pins]):
                    subprocess.run(step, check=True, capture_output=True, timeout=PATIENCE_S)
            except (OSError, subprocess.SubprocessError) as error:
                print(f"{self.name}: {error}", file=sys.stderr)
                return None
            (folder / "installed").touch()
        return python

    async def measure(self, python: Path, setting: Setting) -> tuple[float, float]:
        """Jobs put in and worked off a second, in a new database."""
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
            said, complaint = await process.communicate()
            if process.returncode != 0:
                raise RuntimeError(f"{self.name} failed:\n{complaint.decode()[-2000:]}")
            ingest, work = json.loads(said.decode().splitlines()[-1])
            await admin.execute(f"DROP DATABASE {database} WITH (FORCE)")
            return ingest, work
        finally:
            await admin.close()


RIVALS = (
    Rival("pgqueuer", "1.6.0", ("asyncpg==0.32.0",)),
    Rival("procrastinate", "3.10.0", ("psycopg[binary]==3.3.8", "psycopg-pool==3.3.3")),
)
