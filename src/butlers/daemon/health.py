"""A butler's health, as ``/health``, the ``status`` tool and the heartbeat in the log report it."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from butlers.config.butler import ButlerKind
from butlers.domain.diagnostic import Diagnostic
from butlers.domain.errors import DatabaseUnavailable
from butlers.domain.module import ModuleState
from butlers.domain.redaction import redactor
from butlers.modules.lifecycle import ModuleSet
from butlers.queue import leased_queue as queue

if TYPE_CHECKING:
    from butlers.daemon.butler import Butler

log = structlog.get_logger()

ANSWER_S = 3.0  # a database that takes longer counts as unreachable
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
        "modules": [module.name for module in modules or ()],
        "module_states": [_without_error(state) for state in modules.states()] if modules else [],
        "stripped_tools": list(modules.stripped_tools) if modules else [],
        "skills": butler.skills.states() if hasattr(butler, "skills") else [],
        "runtime": butler.spawner.runtime.name if hasattr(butler, "spawner") else None,
        "providers": butler.broker.upstreams.circuits() if butler.broker else {},
        "queues": queues,
        "switchboard": _switchboard(butler),
        "diagnostics": [_shown(butler, found) for found in _diagnostics(butler)],
    }


class HealthMonitor:
    """Logs a heartbeat at each interval, and each change of health."""

    def __init__(self, butler: Butler) -> None:
        self._status = butler.status
        self._interval_s = butler.config.scheduler.heartbeat_interval_s
        self._health: str | None = None

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        next_beat = loop.time()
        while True:
            state = await self._status()
            if state["health"] not in ("starting", self._health):
                self._log_change(state)
            if loop.time() >= next_beat:
                log.debug("heartbeat", health=state["health"], queues=state["queues"])
                next_beat = loop.time() + self._interval_s
            await asyncio.sleep(min(CHECK_S, self._interval_s))

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
    well = connected and parts and not butler.reflexes.diagnostics
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


def _database(butler: Butler, *, connected: bool) -> str:
    if connected:
        return "connected"
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
