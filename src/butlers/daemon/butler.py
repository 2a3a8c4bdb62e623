"""Butler: the composition root. It owns the parts of one daemon from start to stop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from types import MappingProxyType
from typing import Any
from uuid import UUID

import structlog
from fastmcp import FastMCP

from butlers.broker.server import Broker
from butlers.config.butler import ButlerConfig
from butlers.config.settings import Settings
from butlers.daemon.endpoint import Endpoint
from butlers.daemon.health import describe_health
from butlers.daemon.phases import PHASES, Phase, open_the_port
from butlers.daemon.registration import Registrar
from butlers.db.database import Database
from butlers.db.migrations import shipped_versions
from butlers.db.provision import Provisioner
from butlers.domain import tasks
from butlers.domain.approval import Question
from butlers.domain.clock import Clock, SystemClock
from butlers.domain.delivery import DeliveryRequest
from butlers.domain.errors import DatabaseUnavailable, PhaseFailed
from butlers.domain.queues import SWITCHBOARD
from butlers.modules.lifecycle import ModuleSet
from butlers.queue.listener import Listener
from butlers.queue.outbox import queue_delivery
from butlers.queue.pause import PauseState
from butlers.scheduling.scheduler import Scheduler
from butlers.secrets.credentials import CredentialStore
from butlers.sessions.budget import FleetBudget
from butlers.sessions.guard import SessionGuard
from butlers.sessions.pool import ButlerPool, ProcessPool
from butlers.sessions.recovery import SessionRecovery
from butlers.sessions.session_log import SessionLog
from butlers.sessions.skills import ButlerSkills
from butlers.sessions.spawner import Spawner
from butlers.skills.reflexes import ReflexBook
from butlers.tools.callers import ButlerTokens, InFlight
from butlers.tools.calls import CallPipeline
from butlers.tools.context import S, Services
from butlers.tools.gate import CallGate
from butlers.tools.role import Role, RoleParts
from butlers.tools.state import StateStore
from butlers.wire.client import Peers
from butlers.wire.tokens import FleetKey, ServerIdentity

log = structlog.get_logger()

RETRY_START_S, START_PAUSE_S, LONGEST_START_PAUSE_S = 60.0, 0.25, 4.0
READY = "ready"
STOPPING = "stopping"


class Butler:
    """One daemon. ``start`` runs the phases in order; ``stop`` undoes them in reverse."""

    # Each is set by the phase that creates it.
    endpoint: Endpoint
    modules: ModuleSet
    reflexes: ReflexBook = ReflexBook()
    database: Database
    state_store: StateStore
    session_log: SessionLog
    listener: Listener
    guard: SessionGuard
    spawner: Spawner
    runtime_warnings: tuple[str, ...] = ()  # an untested CLI, a model without a price
    recovery: SessionRecovery
    warm: ButlerPool
    peers: Peers
    mcp: FastMCP
    pipeline: CallPipeline
    tool_bytes: Mapping[str, int] = MappingProxyType({})  # size of each tool that sessions may call
    credentials: CredentialStore
    skills: ButlerSkills
    tokens: ButlerTokens
    parts: RoleParts
    roles: tuple[Role, ...] = ()
    registrar: Registrar | None = None

    def __init__(
        self,
        config: ButlerConfig,
        *,
        settings: Settings,
        key: FleetKey,
        provisioner: Provisioner,
        clock: Clock | None = None,
        versions: Path | None = None,
        max_sessions: int | None = None,
        shared_pool: ProcessPool | None = None,
        fleet_budget: FleetBudget | None = None,
        broker: Broker | None = None,
        sandbox_required: bool = True,
        phases: tuple[Phase, ...] = PHASES,
    ) -> None:
        self.config = config
        self.settings = settings
        self.home = settings.home
        self.key = key
        self.identity = ServerIdentity(key, config.name)
        self.provisioner = provisioner
        self.clock = clock or SystemClock()
        self.versions = versions or shipped_versions()
        self.max_sessions = max_sessions  # of the whole fleet; None: as many as the memory allows
        self.shared_pool = shared_pool
        self.fleet_budget = fleet_budget
        self.broker = broker  # None: sessions have the key of their provider
        self.sandbox_required = sandbox_required  # for scripts of skills from elsewhere
        self.in_flight = InFlight()
        self.pause_state = PauseState()
        self.phase = "created"
        self.failure: str | None = None
        self.stack = AsyncExitStack()
        self._phases = phases
        self._ready_at: float | None = None
        self._end_by: float | None = None

    async def start(self) -> None:
        """Run the phases in order. When one fails, undo the earlier ones and raise PhaseFailed.

        A start whose database was there and goes away is repeated, for a while.
        """
        structlog.contextvars.bind_contextvars(butler=self.config.name)
        phases, pause_s = self._phases, START_PAUSE_S
        deadline = self.clock.monotonic() + RETRY_START_S
        while (failed := await self._run_phases(phases)) is not None:
            if not self._is_passing(failed) or self.clock.monotonic() > deadline:
                self.failure = failed.message
                raise failed from failed.__cause__
            log.warning("start is repeated", why=failed.message, seconds=pause_s)
            await asyncio.sleep(pause_s)
            pause_s, self._end_by = min(2 * pause_s, LONGEST_START_PAUSE_S), None
            phases = tuple(phase for phase in self._phases if phase is not open_the_port)
        self.phase = READY
        self._ready_at = self.clock.monotonic()
        log.info("butler ready", port=self.endpoint.port, url=self.url)

    async def _run_phases(self, phases: tuple[Phase, ...]) -> PhaseFailed | None:
        """Return the failure of a phase, after undoing the earlier ones; None if there was none."""
        for phase in phases:
            self.phase = phase.__name__.replace("_", " ")
            try:
                await self._run_phase(phase)
            except BaseException as error:
                await self._undo()
                if not isinstance(error, Exception):
                    raise
                failed = PhaseFailed(self.phase, error)
                failed.__cause__ = error
                return failed
        return None

    def _is_passing(self, failed: PhaseFailed) -> bool:
        """Return whether the database, which was there before, is gone at the moment."""
        was_there = hasattr(self, "database") or self.provisioner.admin.ours
        return was_there and isinstance(failed.__cause__, DatabaseUnavailable)

    async def _run_phase(self, phase: Phase) -> None:
        log.info("phase started", phase=self.phase)
        started = time.monotonic()
        await phase(self)
        seconds = round(time.monotonic() - started, 3)
        log.info("phase ended", phase=self.phase, seconds=seconds)

    async def stop(self) -> None:
        structlog.contextvars.bind_contextvars(butler=self.config.name)
        log.info("shutdown initiated")
        if self.failure is None:
            self.phase = STOPPING
        await self._undo()
        if hasattr(self, "endpoint"):
            await self.endpoint.close()
        log.info("shutdown complete")

    async def _undo(self) -> None:
        self._end_by = self.clock.monotonic() + self.config.shutdown.timeout_s
        await self.stack.aclose()

    @property
    def url(self) -> str:
        return self.endpoint.url

    @property
    def is_ready(self) -> bool:
        return self.phase == READY

    @property
    def is_stopping(self) -> bool:
        return self.phase == STOPPING

    @property
    def uptime_s(self) -> float:
        return self.clock.monotonic() - self._ready_at if self._ready_at is not None else 0.0

    @property
    def grace_s(self) -> float:
        """The rest of the shutdown's time, which all cleanup steps share."""
        if self._end_by is None:
            return self.config.shutdown.timeout_s
        return max(0.0, self._end_by - self.clock.monotonic())

    @property
    def services(self) -> Services:
        """The services that tools use. Available once the roles are open."""
        return Services(
            self.config,
            self.database,
            self.clock,
            self.listener,
            self.spawner,
            self.status,
            self.modules,
            self.pause_state,
            self.skills,
            self.roles,
            self._call_switchboard if self.config.switchboard else None,
            self.reflexes,
        )

    async def _call_switchboard(self, tool: str, arguments: dict[str, Any]) -> Any:
        assert self.config.switchboard is not None
        url = self.config.switchboard.url
        return await self.peers.call(SWITCHBOARD, url, tool, arguments)

    def service(self, kind: type[S]) -> S:
        """Return the service of this type, which a role of this butler provides."""
        return self.services.require(kind)

    @property
    def scheduler(self) -> Scheduler:
        """The scheduler, which every butler has."""
        return self.service(Scheduler)

    async def status(self) -> dict[str, Any]:
        return await describe_health(self)

    async def tell_owner(self, delivery_id: UUID, message: str) -> None:
        """Send the owner a message of the butler itself. Without a Switchboard, do nothing."""
        if self.config.switchboard is None:
            return
        delivery = DeliveryRequest.to_owner(delivery_id, self.config.name, message)
        async with self.database.transaction() as connection:
            await queue_delivery(connection, delivery)

    async def ask_owner(self, question: Question) -> bool:
        """Ask the owner about a call that the butler itself wants to make. False without approvals."""
        gate = self.services.find(CallGate)
        if gate is None:
            return False
        async with self.database.transaction() as connection:
            await gate.ask(connection, question)
        return True

    def background(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run a task for as long as the butler lives."""
        task = asyncio.create_task(work, name=f"{self.config.name}:{name}")
        self.stack.push_async_callback(tasks.end, task)
