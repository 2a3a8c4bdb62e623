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
from dataclasses import dataclass, replace
from uuid import UUID

from butlers.domain.caller import Caller, CallerKind
from butlers.domain.request import RequestContext
from butlers.domain.session import SessionRequest
from butlers.store.journal import CallCounter

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
        return self.tools is None or tool in self.tools


class SessionGuard:
    def __init__(self, butler: str) -> None:
        self._butler = butler
        self._live: dict[str, LiveSession] = {}

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
        live = LiveSession(address, Caller(CallerKind.SESSION, self._butler, address))
        self._live[_digest(token)] = live
        try:
            yield token, live
        finally:
            del self._live[_digest(token)]

    def find(self, token: str) -> LiveSession | None:
        live = self._live.get(_digest(token))
        return live if live is not None and time.monotonic() < live.expires else None

    @property
    def count(self) -> int:
        return sum(live.begun for live in self._live.values())


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
