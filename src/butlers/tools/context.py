"""The argument that every tool receives: the caller, the request, the connection and the services."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

from butlers.config.butler import ButlerConfig
from butlers.db.database import Connection, Database
from butlers.domain.caller import Caller
from butlers.domain.clock import Clock
from butlers.domain.errors import NotAllowed
from butlers.domain.message import RequestContext
from butlers.domain.module import ModuleControl
from butlers.queue.journal import CallKey
from butlers.queue.listener import Listener
from butlers.queue.pause import PauseState
from butlers.sessions.skills import ButlerSkills
from butlers.sessions.spawner import Spawner
from butlers.tools.role import Role

S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class Services:
    """The parts of a butler that core tools use, and its roles, which provide further services."""

    config: ButlerConfig
    database: Database
    clock: Clock
    listener: Listener
    spawner: Spawner
    status: Callable[[], Awaitable[dict[str, Any]]]
    modules: ModuleControl
    pause_state: PauseState
    skills: ButlerSkills
    roles: tuple[Role, ...] = ()

    def find(self, kind: type[S]) -> S | None:
        """Return the service of this type, or None when no role of this butler provides it."""
        provided = (service for role in self.roles for service in role.services())
        return next((service for service in provided if isinstance(service, kind)), None)

    def require(self, kind: type[S]) -> S:
        found = self.find(kind)
        if found is None:
            raise LookupError(f"no role of {self.config.name} provides {kind.__name__}")
        return found


@dataclass(frozen=True, slots=True)
class CallContext:
    services: Services
    caller: Caller
    request: RequestContext | None = None
    key: CallKey | None = None
    _connection: Connection | None = None
    outside: Collection[str] = ()  # tools that gave this session text written by other people

    @property
    def butler(self) -> str:
        return self.services.config.name

    def service(self, kind: type[S]) -> S:
        """Return the service of this type, which a role of this butler provides."""
        return self.services.require(kind)

    @property
    def skills(self) -> ButlerSkills:
        return self.services.skills

    @property
    def clock(self) -> Clock:
        return self.services.clock

    @property
    def now(self) -> datetime:
        """The time of the request, the same in each run of it; without a request, the current time."""
        return self.request.received_at if self.request else self.clock.now()

    @property
    def zone(self) -> ZoneInfo:
        return ZoneInfo(self.services.config.timezone)

    @property
    def connection(self) -> Connection:
        """The connection of this call's transaction. LONG and LOOK tools have none."""
        if self._connection is None:
            raise RuntimeError("a LONG or LOOK tool has no connection; open a transaction")
        return self._connection


def require_trusted_input(ctx: CallContext, action: str) -> None:
    """Raise NotAllowed unless everything that the session has read was written by the owner."""
    hint = "ask the owner, with notify, to do it"
    if ctx.request is not None and not ctx.request.is_owners:
        raise NotAllowed(f"a session for a message of another person may not {action}", hint=hint)
    if ctx.outside:
        read = ", ".join(sorted(ctx.outside))
        raise NotAllowed(
            f"a session that has read text of other people (with {read}) may not {action}",
            hint=hint,
        )
