"""The caller of a tool, derived from its bearer token and never from its arguments."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID


class CallerKind(StrEnum):
    SESSION = "session"  # a model or reflex that this butler spawned
    PEER = "peer"  # another butler's daemon
    OWNER = "owner"  # the person, through the command line, a connector or the dashboard


@dataclass(frozen=True, slots=True)
class Caller:
    kind: CallerKind
    name: str
    session_id: UUID | None = None
    request_id: UUID | None = None


OWNER_AND_PEERS = frozenset({CallerKind.OWNER, CallerKind.PEER})
OWNER_ONLY = frozenset({CallerKind.OWNER})
PEERS = frozenset({CallerKind.PEER})
SESSIONS = frozenset({CallerKind.SESSION, CallerKind.OWNER})
EVERYONE = frozenset(CallerKind)
