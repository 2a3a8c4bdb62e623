"""A butler's health, as ``/health``, the ``status`` tool and the heartbeat in the log report it."""

from __future__ import annotations

import asyncio
import os
import shutil
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncpg
import structlog

from butlers.config.butler import ButlerKind
from butlers.domain.clock import uuid7
from butlers.domain.diagnostic import Diagnostic
from butlers.domain.errors import ButlersError, DatabaseUnavailable
from butlers.domain.module import ModuleState
from butlers.domain.redaction import redactor
from butlers.modules.lifecycle import ModuleSet
from butlers.process.sandbox import sandbox_problem
from butlers.queue import leased_queue as queue

if TYPE_CHECKING:
    from butlers.daemon.butler import Butler

log = structlog.get_logger()

ANSWER_S = 3.0  # a database that takes longer counts as unreachable
LEAST_FREE, LEAST_FREE_SHARE = 256 * 2**20, 0.02  # of the disk: below that a warning is given
CHECK_S = 5.0  # a change of health is logged within this time, however rare the heartbeat is

QueueDepths = dict[str, dict[str, int]]


async def describe_health(butler: Butler) -> dict[str, Any]:
    """Return name, health, phase, modules, queues and the rest, in any phase of a butler's life."""
    queues = await _queue_depths(butler)
    modules: ModuleSet | None = getattr(butler, "modules", None)
    return {
        "name": butler.config.name,
        "description": butler.config.description,
        "role": str(butler.config.role),
        "health": _health(butler, connected=queues is not None),
        "phase": butler.phase,
        "error": butler.failure and _without_paths(butler, redactor.scrub(butler.failure)),
        "uptime_s": round(butler.uptime_s, 3),
        "database": _database(butler, connected=queues is not None),
        "warnings": _warnings(butler),
        "modules": [module.name for module in modules or ()],
        "module_states": [_without_error(state) for state in modules.states()] if modules else [],
        "stripped_tools": list(modules.stripped_tools) if modules else [],
        "skills": butler.skills.states() if hasattr(butler, "skills") else [],
        "runtime": butler.spawner.runtime.name if hasattr(butler, "spawner") else None,
        "runtime_warnings": list(butler.runtime_warnings),
        "providers": butler.broker.upstreams.circuits() if butler.broker else {},
        "sandbox": _sandbox(butler),
        "queues": queues,
        "questions": await _open_questions(butler) if queues is not None else None,
        "switchboard": _switchboard(butler),
        "diagnostics": [_shown(butler, found) for found in _diagnostics(butler)],
    }


class HealthMonitor:
    """Logs a heartbeat at each interval, and each change of health."""

    def __init__(self, butler: Butler) -> None:
        self._status = butler.status
        self._interval_s = butler.config.scheduler.heartbeat_interval_s
        self._health: str | None = None
        self._butler = butler
        self._warned: date | None = None

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        next_beat = loop.time()
        while True:
            state = await self._status()
            if state["health"] not in ("starting", self._health):
                self._log_change(state)
            if state["warnings"]:
                await self._warn(state["warnings"])
            if loop.time() >= next_beat:
                log.debug("heartbeat", health=state["health"], queues=state["queues"])
                next_beat = loop.time() + self._interval_s
            await asyncio.sleep(min(CHECK_S, self._interval_s))

    async def _warn(self, warnings: list[str]) -> None:
        """Log the warnings once a day; the Messenger also tells the owner, for the whole fleet."""
        today = self._butler.clock.now().date()
        if self._warned == today:
            return
        self._warned = today
        log.warning("needs attention", warnings=warnings)
        if self._butler.config.role is ButlerKind.MESSENGER:
            with suppress(ButlersError):
                await self._butler.tell_owner(uuid7(), f"Attention: {'; '.join(warnings)}.")

    def _log_change(self, state: dict[str, Any]) -> None:
        before, self._health = self._health, state["health"]
        if before is None and self._health == "healthy":
            return
        write = log.info if self._health == "healthy" else log.warning
        write("health changed", before=before, now=self._health, database=state["database"])


def _health(butler: Butler, *, connected: bool) -> str:
    if butler.failure is not None:
        return "failed"
    if not butler.is_ready:
        return "stopping" if butler.is_stopping else "starting"
    parts = butler.modules.healthy and butler.skills.healthy
    well = connected and parts and not butler.reflexes.diagnostics and not butler.database.fault
    return "healthy" if well else "degraded"


def _diagnostics(butler: Butler) -> tuple[Diagnostic, ...]:
    of_skills = butler.skills.diagnostics if hasattr(butler, "skills") else ()
    return (*butler.reflexes.diagnostics, *of_skills)


def _without_error(state: ModuleState) -> dict[str, Any]:
    """Return a module's state without the error text, because /health asks for no token."""
    return {key: value for key, value in state.as_dict().items() if key != "failure_error"}


def _shown(butler: Butler, found: Diagnostic) -> dict[str, Any]:
    """Return a diagnostic with paths relative to the butler's folder, because /health asks for no token."""
    return {
        key: _without_paths(butler, value) if isinstance(value, str) else value
        for key, value in found.as_dict().items()
    }


def _without_paths(butler: Butler, text: str) -> str:
    """Shorten the absolute paths of the butler's folder, the home and the user's home."""
    directory = butler.config.directory
    for folder, shown in (
        (f"{directory}{os.sep}", ""),
        (str(directory), butler.config.name),
        (str(butler.home), "$BUTLERS_HOME"),
        (str(directory.parent), "roster"),
        (str(Path.home()), "~"),
    ):
        if folder != os.sep:
            text = text.replace(folder, shown)
    return text


def _sandbox(butler: Butler) -> str | None:
    """Return whether scripts and CLIs have a sandbox; None before that was asked."""
    if not hasattr(butler, "skills"):
        return None
    return "ok" if sandbox_problem() is None else "none"


def _warnings(butler: Butler) -> list[str]:
    """Return what is not broken yet, or is broken and does not show elsewhere."""
    found = []
    if butler.is_ready and (fault := butler.database.fault):
        found.append(f"the database lacks resources ({_without_paths(butler, fault)})")
    if (low := disk_warning(butler.home)) is not None:
        found.append(low)
    return found


def disk_warning(folder: Path) -> str | None:
    """Return a warning before the disk of the folder is full."""
    try:
        usage = shutil.disk_usage(folder)
    except OSError:
        return None
    if usage.free >= max(LEAST_FREE, usage.total * LEAST_FREE_SHARE):
        return None
    return f"the disk is almost full: {usage.free // 2**20:,} MB free"


def _database(butler: Butler, *, connected: bool) -> str:
    if connected:
        return "exhausted" if butler.database.fault else "connected"
    return "unreachable" if butler.is_ready else "not connected"


def _switchboard(butler: Butler) -> str | None:
    if butler.config.role is ButlerKind.SWITCHBOARD or butler.registrar is None:
        return None
    return "connected" if butler.registrar.connected else "waiting"


async def _queue_depths(butler: Butler) -> QueueDepths | None:
    """Return the number of items per queue and state, or None if the database does not answer."""
    if not butler.is_ready:
        return None
    try:
        async with asyncio.timeout(ANSWER_S), butler.database.transaction() as connection:
            return await queue.depths(connection)
    except (DatabaseUnavailable, TimeoutError):
        return None


async def _open_questions(butler: Butler) -> int | None:
    """Return how many calls wait for the owner, or None if that is not known."""
    try:
        async with asyncio.timeout(ANSWER_S), butler.database.transaction() as connection:
            counts = [await role.open_questions(connection) for role in butler.roles]
    except (DatabaseUnavailable, TimeoutError, asyncpg.UndefinedTableError):
        return None
    return sum(counts)
