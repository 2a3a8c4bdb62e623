"""The interface through which a role (Switchboard, Messenger, scheduling) contributes to a butler.

A role is declared in its own package. The daemon opens the roles of a butler, registers their tools and
HTTP routes, starts their workers and loops, and asks them what retention may delete.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

from starlette.requests import Request
from starlette.responses import Response

from butlers.config.butler import ButlerConfig
from butlers.db.database import Connection, Database
from butlers.domain.clock import Clock
from butlers.queue.listener import Listener
from butlers.queue.worker import Handler
from butlers.secrets.credentials import CredentialStore
from butlers.sessions.recovery import SessionRecovery
from butlers.sessions.spawner import Spawner
from butlers.tools.callers import ButlerTokens, InFlight
from butlers.tools.declaration import ToolFunction
from butlers.wire.client import Peers

S = TypeVar("S")
Loop = Callable[[], Coroutine[Any, Any, None]]
Hop = dict[str, Any]  # one step of a request: "hop" is its kind, "at" its time


@dataclass(frozen=True, slots=True)
class RoleParts:
    """The parts of a butler that a role may use."""

    config: ButlerConfig
    home: Path
    database: Database
    listener: Listener
    clock: Clock
    spawner: Spawner
    recovery: SessionRecovery
    peers: Peers
    credentials: CredentialStore
    tokens: ButlerTokens
    in_flight: InFlight
    status: Callable[[], Awaitable[dict[str, Any]]]
    jobs: Mapping[str, Callable[..., Awaitable[Any]]]  # of the working modules, by function name
    earlier: list[Role] = field(default_factory=list)  # the roles that are open already

    def find(self, kind: type[S]) -> S | None:
        """Return a service of a role that was opened before, or None."""
        provided = (service for role in self.earlier for service in role.services())
        return next((service for service in provided if isinstance(service, kind)), None)


@dataclass(frozen=True, slots=True)
class QueueWork:
    """A queue, the handler of its items and how many of them are handled at once."""

    queue: str
    handler: Handler
    concurrency: int


@dataclass(frozen=True, slots=True)
class HttpRoute:
    """An HTTP route beside ``/mcp``."""

    path: str
    endpoint: Callable[[Request], Awaitable[Response]]
    methods: tuple[str, ...] = ("POST",)


class Role:
    """Base class of roles. Each default contributes nothing."""

    @classmethod
    def belongs_to(cls, config: ButlerConfig) -> bool:
        """Return whether the butler with this configuration has the role."""
        return True

    @classmethod
    def validate_config(cls, config: ButlerConfig, home: Path) -> None:
        """Raise ConfigInvalid for tables of butler.toml that only the role can check."""

    async def open(self, parts: RoleParts) -> None:
        """Build the services. Called once, before any other method of the role."""

    async def sync(self) -> None:
        """Bring stored rows in line with butler.toml. Called after every role is open."""

    def services(self) -> Sequence[object]:
        """Return the objects that tools find by their type (``ctx.service``)."""
        return ()

    def tools(self) -> Sequence[ToolFunction]:
        return ()

    def workers(self) -> Sequence[QueueWork]:
        return ()

    def routes(self) -> Sequence[HttpRoute]:
        return ()

    def loops(self) -> Mapping[str, Loop]:
        """Return the background loops by name. They run while the butler lives."""
        return {}

    def jobs(self) -> Mapping[str, Callable[..., Awaitable[Any]]]:
        """Return the functions that schedules may run, by name."""
        return {}

    def retention(self) -> Mapping[str, str]:
        """Return, by table, the SQL condition of the rows that retention may delete.

        $1 is the time before which a row must have ended, $2 the ids (text[]) of requests and
        deliveries that are still open.
        """
        return {}

    async def open_questions(self, connection: Connection) -> int:
        """Return the number of calls that wait for the owner's decision."""
        return 0

    async def request_hops(self, connection: Connection, request_id: UUID) -> list[Hop]:
        """Return the steps of a request that this role's tables know, for ``butlers trace``."""
        return []

    async def stored_files(self, connection: Connection) -> set[str] | None:
        """Return the storage references in this role's rows, or None.

        Only a role that owns the stored files returns a set: its butler then deletes files that are
        old and that no row refers to.
        """
        return None
