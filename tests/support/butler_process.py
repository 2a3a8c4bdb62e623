"""A butler in a process of its own: started by its command, asked by clients, ended by a signal."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from butlers.db.database import Login
from butlers.domain.caller import CallerKind
from butlers.wire.tokens import FleetKey
from support import mcp_clients as clients
from support.fleet import Slot, butlers_environment
from support.forked import Forked, nursery
from support.mcp_clients import ToolClient
from support.waiting import PATIENCE_S, until
from support.waiting_sessions import HeldLocks, held_locks, write_waiting_butler

PORT = 40101  # as butler.toml says it; the slot's offset makes it one that nobody else has


@dataclass
class ButlerProcess:
    """The butler whose sessions wait for locks, run by ``butlers run``."""

    directory: Path
    home: Path
    admin: Login
    database: str
    slot: Slot = field(default_factory=Slot)
    process: Forked | None = None

    def write(self, extra: str = "") -> None:
        write_waiting_butler(self.directory, self.database, extra, port=PORT)

    @property
    def port(self) -> int:
        return PORT + self.slot.offset

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    @property
    def owner_token(self) -> str:
        return FleetKey.load(self.home).mint(CallerKind.OWNER, "owner", "postbox")

    async def start(self) -> None:
        self._launch()
        await until("the butler to be ready", self._is_ready)

    def _launch(self) -> None:
        environment = butlers_environment(
            self.home, self.slot.offset, DATABASE_URL=self.admin.server_dsn
        )
        arguments = ("run", "--config", str(self.directory))
        self.process = nursery().start(arguments, environment, self.home / "log", self.home)

    async def _is_ready(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log
        try:
            async with httpx.AsyncClient(trust_env=False, verify=False, timeout=10) as http:
                answer = await http.get(f"http://127.0.0.1:{self.port}/health")
        except httpx.HTTPError:
            return False
        return bool(answer.json()["phase"] == "ready")

    def terminate(self) -> None:
        assert self.process is not None
        self.process.terminate()

    async def ended(self) -> int:
        """Its exit code."""
        assert self.process is not None
        return await asyncio.to_thread(self.process.wait, PATIENCE_S)

    # -- what it says ----------------------------------------------------------------------------

    @property
    def log(self) -> str:
        return (self.home / "log").read_text()

    @property
    def lines(self) -> list[dict[str, Any]]:
        whole = self.log.rpartition("\n")[0]  # the last line may be in the middle of its writing
        return [json.loads(line) for line in whole.splitlines()]

    @property
    def events(self) -> list[str]:
        """The log as a list of what happened; with a module, its name is added."""
        return [
            f"{line['event']}: {line['module']}" if "module" in line else str(line["event"])
            for line in self.lines
        ]

    def said(self, event: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["event"] == event]

    async def until_said(self, event: str) -> dict[str, Any]:
        return (await until(f"the log to say {event!r}", lambda: self.said(event)))[0]

    # -- its clients and its locks --------------------------------------------------------------------

    @asynccontextmanager
    async def owner(self) -> AsyncIterator[ToolClient]:
        async with clients.fastmcp_modern(self.url, self.owner_token) as client:
            yield client

    def held_locks(self, *locks: int) -> AbstractAsyncContextManager[HeldLocks]:
        return held_locks(self.admin, self.database, *locks)

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.slot.release()
