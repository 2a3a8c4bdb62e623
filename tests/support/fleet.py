"""A fleet of real processes under test: started, killed, asked and counted from outside."""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import asyncpg
import httpx

from butlers.channels.console.connector import ConsoleConnector, Reply
from butlers.cli.fleet import owner_client
from butlers.config.settings import Settings
from butlers.db.embedded import EmbeddedPostgres
from butlers.domain.caller import CallerKind
from butlers.modules.memory.learning import consolidation
from butlers.queue.leased_queue import KEPT
from butlers.wire import directory
from butlers.wire.client import McpClient
from butlers.wire.tokens import FleetKey
from support.forked import Forked, nursery, run_butlers

ROOT = Path(__file__).resolve().parents[2]
BUTLERS = ("switchboard", "messenger", "general", "health")
PORTS = (*range(40100, 40107), 40200)
# The dashboard's port of a slot, 100 above its first, lies between the butlers' ports of another slot.
FIRST_PORT, PORTS_PER_SLOT, SLOTS = 10100, 13, 300
PATIENCE_S = 120.0
T = TypeVar("T")

# Items on their way. The next consolidation of the memory is always planned: until it is due, it is none.
_ON_THE_WAY = """
SELECT FROM {}.queue_items
WHERE state IN ('ready', 'leased') AND (error IS DISTINCT FROM $1 OR NOT $2)
  AND NOT (queue = $3 AND state = 'ready' AND attempts = 0 AND run_after > now())
"""


def wait_for(what: str, condition: Callable[[], T | None], timeout_s: float = PATIENCE_S) -> T:
    """Wait for a condition, not for seconds; the time limit only ends a test that hangs."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.02)
    raise AssertionError(f"waited {timeout_s:g} s in vain for: {what}")


class Slot:
    """Ports outside the ephemeral range that no other test of this machine uses at the same time."""

    def __init__(self) -> None:
        folder = Path(tempfile.gettempdir()) / "butlers-test-slots"
        folder.mkdir(exist_ok=True)
        for number in range(SLOTS):
            self._lock = open(folder / str(number), "a")  # noqa: SIM115  (held while the slot is)
            offset = FIRST_PORT + number * PORTS_PER_SLOT - min(PORTS)
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._lock.close()
                continue
            if all(_is_free(port + offset) for port in PORTS):
                self.offset = offset
                return
            self._lock.close()
        raise AssertionError("no free slot of ports")

    def release(self) -> None:
        self._lock.close()


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def butlers_environment(home: Path, offset: int, **extra: str) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "PYTHONPATH": str(ROOT / "src"),
        "BUTLERS_HOME": str(home),
        "BUTLERS_PORT_OFFSET": str(offset),
        "BUTLERS_LOG": "json",
        **extra,
    }


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "butlers.cli.main", *arguments]


def health_of(name: str, slot: Slot) -> dict[str, Any] | None:
    port = 40100 + BUTLER_PORTS[name] + slot.offset
    try:
        answer = httpx.get(
            f"http://127.0.0.1:{port}/health", timeout=10, trust_env=False, verify=False
        )
    except httpx.HTTPError:
        return None
    found: dict[str, Any] = answer.json()
    return found


def is_registered(name: str, slot: Slot) -> bool:
    """Return whether the butler is healthy and the Switchboard knows it."""
    state = health_of(name, slot)
    return bool(state and state["health"] == "healthy" and state["switchboard"] != "waiting")


@dataclass
class Fleet:
    """The four butlers, each in a process of its own, on one home."""

    home: Path
    slot: Slot = field(default_factory=Slot)
    processes: dict[str, Forked] = field(default_factory=dict)
    folders: dict[str, Path] = field(default_factory=dict)  # of those configured otherwise
    environment: dict[str, str] = field(default_factory=dict)  # of every butler, beside the usual
    environments: dict[str, dict[str, str]] = field(default_factory=dict)  # of one butler

    @classmethod
    def copy_of(cls, template: Path) -> Fleet:
        home = Path(tempfile.mkdtemp(prefix="bh-"))
        shutil.copytree(template, home, dirs_exist_ok=True, symlinks=True)
        return cls(home)

    @property
    def settings(self) -> Settings:
        return Settings.from_environ(butlers_environment(self.home, self.slot.offset))

    # -- processes -----------------------------------------------------------------------------

    def up(self) -> None:
        """Start all butlers in one process by ``butlers up`` in the home folder."""
        self.processes["up"] = process = nursery().start(
            ("up",),
            butlers_environment(self.home, self.slot.offset, **self.environment),
            self.home / "up.log",
            self.home,
        )

        def is_up() -> bool:
            assert process.poll() is None, f"butlers up ended: {self.log('up')[-3000:]}"
            return "Butlers is up" in self.log("up")

        wait_for("the fleet to be up", is_up)

    def start(self, name: str, **extra: str) -> None:
        self.processes[name] = nursery().start(
            ("run", "--config", str(self.folders.get(name, ROOT / "roster" / name))),
            butlers_environment(
                self.home,
                self.slot.offset,
                **{**self.environment, **self.environments.get(name, {}), **extra},
            ),
            self.home / f"{name}.log",
            self.home,
        )

    def start_all(self) -> None:
        for name in BUTLERS:
            self.start(name)
        for name in BUTLERS:
            self.wait_healthy(name)

    def wait_healthy(self, name: str) -> dict[str, Any]:
        process = self.processes[name]

        def healthy() -> dict[str, Any] | None:
            assert process.poll() is None, f"{name} ended: {self.log(name)[-3000:]}"
            return self.health(name) if is_registered(name, self.slot) else None

        return wait_for(f"{name} to be healthy", healthy)

    def health(self, name: str) -> dict[str, Any] | None:
        return health_of(name, self.slot)

    def wait_killed(self, name: str) -> None:
        code = self.processes[name].wait(PATIENCE_S)
        assert code == -signal.SIGKILL, f"{name} ended with {code}: {self.log(name)[-2000:]}"

    def kill(self, name: str) -> None:
        self.processes[name].kill()
        self.processes[name].wait()

    def stop(self, name: str) -> int:
        self.processes[name].terminate()
        return self.processes[name].wait(PATIENCE_S)

    def log(self, name: str) -> str:
        return (self.home / f"{name}.log").read_text()

    def close(self) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.terminate()
        for process in self.processes.values():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        server = EmbeddedPostgres(self.home)  # a killed butler may have been the last to hold it
        server.acquire()
        server.release()
        self.slot.release()
        shutil.rmtree(self.home, ignore_errors=True)

    # -- commands --------------------------------------------------------------------------------

    def butlers(
        self, *arguments: str, stdin: str | bytes | None = None, **extra: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command, as a person types it."""
        env = butlers_environment(self.home, self.slot.offset, **extra)
        return run_butlers(*arguments, env=env, cwd=self.home, stdin=stdin)

    # -- talking to it ---------------------------------------------------------------------------

    def send(self, text: str, event_id: str | None = None) -> UUID:
        return self._console(lambda console: console.send(text, event_id=event_id))

    def replies(self, request_id: UUID, *, timeout_s: float = PATIENCE_S) -> list[Reply]:
        """Return the replies that a console shows: the first, and those that are there by then."""

        async def collect(console: ConsoleConnector) -> list[Reply]:
            shown: list[Reply] = []
            while fresh := await console.receive(request_id, 0 if shown else timeout_s):
                shown += fresh
                await console.shown(fresh)
            return shown

        return self._console(collect)

    def call(self, butler: str, tool: str, arguments: dict[str, Any] | None = None) -> Any:
        async def call() -> Any:
            async with owner_client(self.settings, butler) as client:
                return await client.call(tool, arguments)

        return asyncio.run(call())

    def call_as_peer(self, me: str, butler: str, tool: str) -> Any:
        """Call a tool with a token of another butler."""

        async def call() -> Any:
            token = FleetKey.load(self.home).mint(CallerKind.PEER, me, butler)
            url = directory.find(self.home, butler).url
            async with McpClient(butler, url, lambda: token) as client:
                return await client.call(tool, {})

        return asyncio.run(call())

    def rows(self, sql: str, *arguments: Any) -> list[asyncpg.Record]:
        """Read rows as the database administrator."""

        async def fetch() -> list[asyncpg.Record]:
            connection = await asyncpg.connect(EmbeddedPostgres(self.home).dsn("butlers"))
            try:
                return await connection.fetch(sql, *arguments)
            finally:
                await connection.close()

        return asyncio.run(fetch())

    def settled(self, *names: str, or_kept: bool = False) -> bool:
        """Return whether these butlers have nothing left to do, or only messages kept for a model."""
        return not any(
            self.rows(_ON_THE_WAY.format(name), KEPT, or_kept, consolidation.QUEUE)
            for name in names
        )

    def _console(self, work: Callable[[ConsoleConnector], Awaitable[T]]) -> T:
        async def run() -> T:
            async with (
                owner_client(self.settings, "switchboard") as switchboard,
                owner_client(self.settings, "messenger") as messenger,
            ):
                return await work(ConsoleConnector(switchboard, messenger))

        return asyncio.run(run())


BUTLER_PORTS = {"switchboard": 0, "general": 1, "health": 3, "messenger": 4}
