"""The argument that every tool receives: the caller, the request, the connection and the services."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

from butlers.config.butler import ButlerConfig
from butlers.db.database import Connection, Database
from butlers.domain.caller import Caller, CallerKind
from butlers.domain.clock import Clock
from butlers.domain.errors import NeedsApproval
from butlers.domain.message import RequestContext
from butlers.domain.module import ModuleControl
from butlers.domain.provenance import Provenance, Trust
from butlers.queue.journal import CallKey
from butlers.queue.listener import Listener
from butlers.queue.pause import PauseState
from butlers.sessions.skills import ButlerSkills
from butlers.sessions.spawner import Spawner
from butlers.skills.reflexes import ReflexBook
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
    # Calls a tool of the Switchboard; None: this butler has none, or is the Switchboard itself.
    switchboard: Callable[[str, dict[str, Any]], Awaitable[Any]] | None = None
    reflexes: ReflexBook = field(default_factory=ReflexBook)

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
    # Tools that gave this session text written by other people. Shared with the session.
    outside: set[str] = field(default_factory=set)
    approved: bool = False  # the owner approved exactly this call
    pages: Mapping[str, str] = field(default_factory=dict)  # long results that the session has

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
    def provenance(self) -> Provenance:
        """Origin of the rows that this call writes."""
        caller, request = self.caller, self.request
        if caller.kind is CallerKind.OWNER:
            return Provenance(Trust.OWNER, caller.name)
        if caller.kind is CallerKind.PEER:
            return Provenance(Trust.OUTSIDE, f"butler {caller.name}")
        own_words = not self.outside and (request is None or request.is_owners)
        trusted = self.approved or own_words
        return Provenance(
            Trust.OWNER if trusted else Trust.OUTSIDE,
            request.source_sender_identity if request else None,
            caller.request_id,
            caller.session_id,
        )

    @property
    def connection(self) -> Connection:
        """The connection of this call's transaction. LONG and LOOK tools have none."""
        if self._connection is None:
            raise RuntimeError("a LONG or LOOK tool has no connection; open a transaction")
        return self._connection


def require_trusted_input(ctx: CallContext, action: str) -> None:
    """Raise NeedsApproval unless everything that the session has read was written by the owner.

    The call pipeline turns the error into a question to the owner. ``action`` completes "the butler wants
    to …". An approved call passes.
    """
    if ctx.approved:
        return
    hint = "ask the owner, with notify, to do it"
    if ctx.request is not None and not ctx.request.is_owners:
        who = ctx.request.source_sender_identity
        raise NeedsApproval(
            f"a session for a message of another person may not {action}",
            action=action,
            why=f"a message of {who} led to it",
            hint=hint,
        )
    if ctx.outside:
        read = ", ".join(sorted(ctx.outside))
        raise NeedsApproval(
            f"a session that has read text of other people (with {read}) may not {action}",
            action=action,
            why=f"the session had read text of other people ({read})",
            hint=hint,
        )
