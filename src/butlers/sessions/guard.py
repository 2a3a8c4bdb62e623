"""The guard: which sessions are alive, and what their tokens open.

A session's token is random, opens only the butler that spawned it, only the tools that the session was
given, and only while it runs. Only its hash is kept, so that nothing in memory or in a log can be used to
call.
"""

from __future__ import annotations

import hashlib
import math
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from uuid import UUID

from butlers.domain.caller import Caller, CallerKind
from butlers.domain.clock import uuid7
from butlers.domain.message import RequestContext
from butlers.domain.session import SessionRequest
from butlers.queue.journal import CallCounter

PREFIX = "bs"
QUERY = "runtime_session_id"  # in the URL that a session is given, for whoever reads a server's log


@dataclass(slots=True)
class LiveSession:
    address: UUID  # what its URL names
    caller: Caller
    request: RequestContext | None = None
    calls: CallCounter | None = None  # None: nothing to journal against
    tools: frozenset[str] | None = None  # None: all that a session may call
    expires: float = math.inf  # monotonic
    connected: bool = False  # whether it ever reached us
    begun: bool = False  # one that only waits for its prompt may look, and call nothing
    hidden: frozenset[str] = frozenset()  # tools that only a lent token opens
    # The tools by which it has read what others may have written; lent tokens read for their session.
    outside: set[str] = field(default_factory=set)

    def begin(self, session: SessionRequest, lifetime_s: float) -> None:
        self.caller = replace(
            self.caller, session_id=session.session_id, request_id=session.request_id
        )
        self.request = session.request
        self.calls = CallCounter(session.request_id) if session.request_id else None
        self.tools = session.tools
        self.expires = time.monotonic() + lifetime_s
        self.begun = True

    def may_call(self, tool: str) -> bool:
        return tool not in self.hidden if self.tools is None else tool in self.tools


class SessionGuard:
    def __init__(self, butler: str, hidden: frozenset[str] = frozenset()) -> None:
        self._butler = butler
        self._hidden = hidden
        self._live: dict[str, LiveSession] = {}
        self._watched: dict[UUID, set[str]] = {}

    @contextmanager
    def admit(self, session: SessionRequest, *, lifetime_s: float = math.inf) -> Iterator[str]:
        """Mint the token of one session; it opens nothing once the block is left."""
        with self.reserve(session.session_id) as (token, live):
            live.begin(session, lifetime_s)
            yield token

    @contextmanager
    def reserve(self, address: UUID) -> Iterator[tuple[str, LiveSession]]:
        """A token for a session that is not known yet: its CLI connects, and waits for the prompt."""
        token = f"{PREFIX}.{secrets.token_urlsafe(32)}"
        caller = Caller(CallerKind.SESSION, self._butler, address)
        live = LiveSession(address, caller, hidden=self._hidden)
        self._live[_digest(token)] = live
        try:
            yield token, live
        finally:
            del self._live[_digest(token)]
            if live.caller.session_id in self._watched:
                self._watched[live.caller.session_id] |= live.outside

    @contextmanager
    def watch(self, session_id: UUID) -> Iterator[set[str]]:
        """The tools by which a session has read what others may have written, known when its token is gone:
        what it says in the end is said after that."""
        self._watched[session_id] = set()
        try:
            yield self._watched[session_id]
        finally:
            del self._watched[session_id]

    @contextmanager
    def lend(
        self,
        caller: Caller,
        request: RequestContext | None,
        tools: frozenset[str],
        lifetime_s: float,
    ) -> Iterator[str]:
        """A second token of a caller who is at work, for a script of ours: it opens these tools alone, and
        its calls are journaled as the session's own."""
        session = self._session(caller)
        with self.reserve(uuid7()) as (token, live):
            live.caller, live.request, live.tools = caller, request, tools
            live.calls = session.calls if session else None
            live.outside = session.outside if session else set()
            live.expires = time.monotonic() + lifetime_s
            live.begun = True
            yield token

    def _session(self, caller: Caller) -> LiveSession | None:
        if caller.session_id is None:
            return None
        own = (one for one in self._live.values() if one.caller.session_id == caller.session_id)
        return next(own, None)

    def find(self, token: str) -> LiveSession | None:
        live = self._live.get(_digest(token))
        return live if live is not None and time.monotonic() < live.expires else None

    @property
    def count(self) -> int:
        return sum(live.begun for live in self._live.values())


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
