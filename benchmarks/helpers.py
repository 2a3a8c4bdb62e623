"""Shared helpers: a fleet with its own home and ports, a migrated database, timing."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from butlers.db.database import Database, Login
from butlers.db.embedded import EmbeddedPostgres
from butlers.db.migrations import butler_chains, migrate, shipped_versions
from butlers.db.provision import ButlerSchema, Provisioner
from butlers.wire.tokens import FleetKey

ROOT = Path(__file__).resolve().parent.parent
PORTS = (40100, 40101, 40103, 40104)
FIRST_PORT, STEP, TRIES = 14100, 10, 300
READY = "Butlers is up"
PATIENCE_S = 120.0


@dataclass(frozen=True, slots=True)
class RunningFleet:
    process: subprocess.Popen[bytes]
    home: Path
    environment: dict[str, str]
    started_at: float  # wall clock, to compare with the log's own times
    started: float  # monotonic
    up_s: float

    @property
    def log(self) -> str:
        return (self.home / "up.err").read_text()

    def send(self, text: str) -> str:
        done = subprocess.run(
            command("send", text, "--wait"),
            env=self.environment,
            check=True,
            capture_output=True,
            text=True,
        )
        return done.stdout.strip()


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "butlers.cli.main", *arguments]


def environment(home: Path, offset: int, base: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the current environment without variables that would change the measurement."""
    kept = {
        key: value
        for key, value in base.items()
        if not key.startswith("BUTLERS_")
        and key not in ("DATABASE_URL", "PYTHONDONTWRITEBYTECODE", "VIRTUAL_ENV")
    }
    return kept | {
        "BUTLERS_HOME": str(home),
        "BUTLERS_PORT_OFFSET": str(offset),
        "BUTLERS_LOG": "json",
        "PYTHONPATH": str(ROOT / "src"),
    }


def free_offset() -> int:
    """Return a port offset whose ports are free and outside the ephemeral range."""
    for number in range(TRIES):
        offset = FIRST_PORT + number * STEP - min(PORTS)
        if all(_is_free(port + offset) for port in PORTS):
            return offset
    raise RuntimeError("no free ports for a fleet")


@contextmanager
def new_home() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="bb-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def running_fleet(home: Path) -> Iterator[RunningFleet]:
    """Run `butlers up --verbose` on this home; yield when it prints that it is up."""
    variables = environment(home, free_offset())
    with (home / "up.out").open("wb") as output, (home / "up.err").open("wb") as log:
        started_at, started = time.time(), time.monotonic()
        process = subprocess.Popen(
            command("up", "--verbose"), env=variables, stdout=output, stderr=log
        )
    try:
        wait_for_line(process, home / "up.out", READY)
        up_s = time.monotonic() - started
        yield RunningFleet(process, home, variables, started_at, started, up_s)
    finally:
        end(process)


def wait_for_line(
    process: subprocess.Popen[bytes], path: Path, text: str, patience_s: float = PATIENCE_S
) -> None:
    deadline = time.monotonic() + patience_s
    while text not in path.read_text(errors="replace"):
        if process.poll() is not None or time.monotonic() > deadline:
            errors = path.with_suffix(".err").read_text(errors="replace")
            raise RuntimeError(f"the fleet did not start:\n{errors[-2000:]}")
        time.sleep(0.005)


def end(process: subprocess.Popen[bytes]) -> float:
    """Stop the process as Ctrl-C does; return the seconds it took."""
    started = time.monotonic()
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        process.wait(PATIENCE_S)
    return time.monotonic() - started


async def open_database(
    server: EmbeddedPostgres, butler: str, size: int | None = None, *, name: str | None = None
) -> Database:
    """Create and migrate a butler's database on the server, and open it."""
    admin = Login(server.dsn(), "postgres", None, "postgres")
    provisioner = Provisioner(admin, FleetKey(secrets.token_bytes(32)))
    login = await provisioner.provision(ButlerSchema(butler, name or f"bench_{butler}", None))
    await migrate(login, butler_chains(butler, shipped_versions()))
    options = {} if size is None else {"size": size}
    return await Database.open(login, butler, **options)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
