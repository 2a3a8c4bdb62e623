"""What a tool is handed: who calls, for which request, and the connection of its transaction."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from butlers.config.butler import ButlerConfig
from butlers.db.database import Connection, Database
from butlers.domain.caller import Caller
from butlers.domain.clock import Clock
from butlers.domain.module import ModuleControl
from butlers.domain.request import RequestContext
from butlers.messenger.traffic import Traffic
from butlers.queue.journal import CallKey
from butlers.queue.listener import Listener
from butlers.queue.pause_state import House
from butlers.scheduling.scheduler import Scheduler
from butlers.sessions.skills import ButlerSkills
from butlers.sessions.spawner import Spawner
from butlers.switchboard.inbound import FrontOffice


@dataclass(frozen=True, slots=True)
class Services:
    """The parts of a butler that core tools work with."""

    config: ButlerConfig
    database: Database
    clock: Clock
    listener: Listener
    spawner: Spawner
    status: Callable[[], Awaitable[dict[str, Any]]]
    scheduler: Scheduler
    modules: ModuleControl
    house: House
    front: FrontOffice | None = None  # the Switchboard's
    traffic: Traffic | None = None  # the Messenger's
    skills: ButlerSkills | None = None


@dataclass(frozen=True, slots=True)
class CallContext:
    services: Services
    caller: Caller
    request: RequestContext | None = None
    key: CallKey | None = None
    _connection: Connection | None = None
    outside: Collection[str] = ()  # the tools by which its session has read what others wrote

    @property
    def butler(self) -> str:
        return self.services.config.name

    @property
    def front(self) -> FrontOffice:
        assert self.services.front is not None  # only the Switchboard has the tools that ask for it
        return self.services.front

    @property
    def skills(self) -> ButlerSkills:
        assert self.services.skills is not None  # only tools of a butler that has them ask for it
        return self.services.skills

    @property
    def clock(self) -> Clock:
        return self.services.clock

    @property
    def now(self) -> datetime:
        """When it was asked: the request's own time, the same in every run of it."""
        return self.request.received_at if self.request else self.clock.now()

    @property
    def zone(self) -> ZoneInfo:
        return ZoneInfo(self.services.config.timezone)

    @property
    def connection(self) -> Connection:
        """The connection of this call's transaction."""
        if self._connection is None:
            raise RuntimeError("a LONG tool has no connection; open a transaction of its own")
        return self._connection
