"""Butler: the composition root that owns one daemon's parts for as long as it lives."""

from __future__ import annotations

import asyncio
import socket
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import structlog
from fastmcp import FastMCP

from butlers.config.butler import ButlerConfig, Role
from butlers.daemon.calls import InFlight
from butlers.daemon.phases import PHASES, Phase
from butlers.domain.clock import Clock, SystemClock
from butlers.domain.errors import PhaseFailed
from butlers.modules.base import Module
from butlers.routing.peers import Peers
from butlers.routing.registration import Registrar
from butlers.sessions.guard import SessionGuard
from butlers.sessions.spawner import Spawner
from butlers.skills.reflexes import ReflexBook
from butlers.store import queue
from butlers.store.database import Database
from butlers.store.listener import Listener
from butlers.store.migrations import shipped_versions
from butlers.store.provision import Provisioner
from butlers.wire.tokens import FleetKey

log = structlog.get_logger()

READY = "ready"


class Butler:
    """One daemon. ``start`` runs the phases in order; ``stop`` undoes them in reverse."""

    # Each is set by the phase that makes it.
    port: socket.socket
    url: str
    modules: tuple[Module, ...] = ()
    reflexes: ReflexBook
    database: Database
    listener: Listener
    guard: SessionGuard
    spawner: Spawner
    peers: Peers
    mcp: FastMCP
    registrar: Registrar | None = None

    def __init__(
        self,
        config: ButlerConfig,
        *,
        home: Path,
        key: FleetKey,
        provisioner: Provisioner,
        clock: Clock | None = None,
        versions: Path | None = None,
        phases: tuple[Phase, ...] = PHASES,
    ) -> None:
        self.config = config
        self.home = home
        self.key = key
        self.provisioner = provisioner
        self.clock = clock or SystemClock()
        self.versions = versions or shipped_versions()
        self.in_flight = InFlight()
        self.phase = "created"
        self.stack = AsyncExitStack()
        self._phases = phases
        self._ready_at: float | None = None

    async def start(self) -> None:
        structlog.contextvars.bind_contextvars(butler=self.config.name)
        for phase in self._phases:
            self.phase = phase.__name__.replace("_", " ")
            started = time.monotonic()
            try:
                await phase(self)
            except BaseException as error:
                await self.stack.aclose()
                if isinstance(error, Exception):
                    raise PhaseFailed(self.phase, error) from error
                raise
            log.debug("phase done", phase=self.phase, seconds=round(time.monotonic() - started, 3))
        self.phase = READY
        self._ready_at = time.monotonic()
        log.info("butler ready", port=self.port.getsockname()[1], url=self.url)

    async def stop(self) -> None:
        log.info("shutdown initiated", butler=self.config.name)
        self.phase = "stopping"
        await self.stack.aclose()
        log.info("shutdown complete", butler=self.config.name)

    @property
    def uptime_s(self) -> float:
        return time.monotonic() - self._ready_at if self._ready_at is not None else 0.0

    async def status(self) -> dict[str, Any]:
        """What ``/health`` and the ``status`` tool say."""
        alive = self.phase == READY and await self.database.is_alive()
        healthy = alive and not self.reflexes.diagnostics
        return {
            "name": self.config.name,
            "description": self.config.description,
            "role": str(self.config.role),
            "health": "healthy" if healthy else "degraded",
            "phase": self.phase,
            "uptime_s": round(self.uptime_s, 3),
            "database": "connected" if alive else "unreachable",
            "modules": [module.name for module in self.modules],
            "runtime": self.spawner.runtime.name,
            "queues": await self._queues() if alive else None,
            "switchboard": self._switchboard(),
            "diagnostics": [found.as_dict() for found in self.reflexes.diagnostics],
        }

    def _switchboard(self) -> str | None:
        if self.config.role is Role.SWITCHBOARD or self.registrar is None:
            return None
        return "connected" if self.registrar.connected else "waiting"

    async def _queues(self) -> dict[str, dict[str, int]]:
        async with self.database.transaction() as connection:
            return await queue.depths(connection)

    def background(self, work: Any, name: str) -> None:
        """Run something for as long as the butler lives; its end is registered here and now."""
        task = asyncio.create_task(work, name=f"{self.config.name}:{name}")

        async def end() -> None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

        self.stack.push_async_callback(end)
