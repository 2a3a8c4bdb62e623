"""The guard: live sessions and the tools that their tokens open.

A session's token is random. It opens only the butler that spawned it, only the tools that the session was
given, and only while it runs. Only its hash is kept, so nothing in memory or in a log can be used as a token.
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
QUERY = "runtime_session_id"  # in the URL of a session, to identify it in server logs


@dataclass(slots=True)
class LiveSession:
    address: UUID  # in its URL
    caller: Caller
    request: RequestContext | None = None
    calls: CallCounter | None = None  # None: its calls are not journaled
    tools: frozenset[str] | None = None  # None: all tools for sessions
    expires: float = math.inf  # monotonic
    connected: bool = False  # it has reached us
    begun: bool = False  # a warm process may list tools before, and call none
    hidden: frozenset[str] = frozenset()  # tools for lent tokens only
    # Tools by which it has read text that others may have written. A lent token shares its session's set.
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
        """Make the token of one session; it is valid during the block."""
        with self.reserve(session.session_id) as (token, live):
            live.begin(session, lifetime_s)
            yield token

    @contextmanager
    def reserve(self, address: UUID) -> Iterator[tuple[str, LiveSession]]:
        """Make a token for a session that is not known yet: a warm process connects with it."""
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
        """Collect the tools by which a session read text that others may have written.

        The set is complete when the session's token is gone.
        """
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
        """Make a second token of a caller, for a script of ours.

        It opens only these tools, and its calls are journaled as the session's own.
        """
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
