"""How a butler is, as ``/health`` and the ``status`` tool say it, in any phase of its life."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from butlers.config.butler import ButlerKind
from butlers.domain.errors import DatabaseUnavailable
from butlers.domain.module import ModuleState
from butlers.domain.redaction import redactor
from butlers.modules.lifecycle import ModuleSet
from butlers.queue import leased_queue as queue

if TYPE_CHECKING:
    from butlers.daemon.butler import Butler

ANSWER_S = 3.0

Queues = dict[str, dict[str, int]]


async def describe(butler: Butler) -> dict[str, Any]:
    queues = await _queues(butler)
    modules: ModuleSet | None = getattr(butler, "modules", None)
    return {
        "name": butler.config.name,
        "description": butler.config.description,
        "role": str(butler.config.role),
        "health": _health(butler, connected=queues is not None),
        "phase": butler.phase,
        "error": butler.failure and redactor.scrub(butler.failure),
        "uptime_s": round(butler.uptime_s, 3),
        "database": _database(butler, connected=queues is not None),
        "modules": [module.name for module in modules or ()],
        "module_states": [_public(state) for state in modules.states()] if modules else [],
        "stripped_tools": list(modules.stripped_tools) if modules else [],
        "skills": butler.skills.states() if hasattr(butler, "skills") else [],
        "runtime": butler.spawner.runtime.name if hasattr(butler, "spawner") else None,
        "queues": queues,
        "switchboard": _switchboard(butler),
        "diagnostics": [found.as_dict() for found in butler.reflexes.diagnostics],
    }


def _health(butler: Butler, *, connected: bool) -> str:
    if butler.failure is not None:
        return "failed"
    if not butler.is_ready:
        return "stopping" if butler.is_stopping else "starting"
    parts = butler.modules.healthy and butler.skills.healthy
    well = connected and parts and not butler.reflexes.diagnostics
    return "healthy" if well else "degraded"


def _public(state: ModuleState) -> dict[str, Any]:
    """A module's state without the error's text: /health asks for no token."""
    return {key: value for key, value in state.as_dict().items() if key != "failure_error"}


def _database(butler: Butler, *, connected: bool) -> str:
    if connected:
        return "connected"
    return "unreachable" if butler.is_ready else "not connected"


def _switchboard(butler: Butler) -> str | None:
    if butler.config.role is ButlerKind.SWITCHBOARD or butler.registrar is None:
        return None
    return "connected" if butler.registrar.connected else "waiting"


async def _queues(butler: Butler) -> Queues | None:
    """Queue depths, which also tells whether the database answers. None: it does not."""
    if not butler.is_ready:
        return None
    try:
        async with asyncio.timeout(ANSWER_S):  # a server that hangs is as good as gone
            async with butler.database.transaction() as connection:
                return await queue.depths(connection)
    except (DatabaseUnavailable, TimeoutError):
        return None
