"""The guard: which sessions are alive, and what their tokens open.

A session's token is random, opens only the butler that spawned it, only the tools that the session was
given, and only while it runs. Only its hash is kept, so that nothing in memory or in a log can be used to
call.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import UUID

from butlers.domain.caller import Caller, CallerKind
from butlers.domain.request import RequestContext
from butlers.domain.session import SessionRequest
from butlers.store.journal import CallCounter

PREFIX = "bs"
QUERY = "runtime_session_id"  # in the URL that a session is given, for whoever reads a server's log


@dataclass(slots=True)
class LiveSession:
    caller: Caller
    request: RequestContext | None
    calls: CallCounter | None  # None: nothing to journal against
    tools: frozenset[str] | None = None  # None: all that a session may call
    expires: float = float("inf")  # monotonic
    connected: bool = False  # whether it ever reached us

    @property
    def session_id(self) -> UUID | None:
        return self.caller.session_id

    def may_call(self, tool: str) -> bool:
        return self.tools is None or tool in self.tools


class SessionGuard:
    def __init__(self, butler: str) -> None:
        self._butler = butler
        self._live: dict[str, LiveSession] = {}

    @contextmanager
    def admit(self, session: SessionRequest, *, lifetime_s: float = float("inf")) -> Iterator[str]:
        """Mint the token of one session; it opens nothing once the block is left."""
        token = f"{PREFIX}.{secrets.token_urlsafe(32)}"
        digest = _digest(token)
        self._live[digest] = LiveSession(
            Caller(CallerKind.SESSION, self._butler, session.session_id, session.request_id),
            session.request,
            CallCounter(session.request_id) if session.request_id else None,
            session.tools,
            time.monotonic() + lifetime_s,
        )
        try:
            yield token
        finally:
            del self._live[digest]

    def find(self, token: str) -> LiveSession | None:
        live = self._live.get(_digest(token))
        return live if live is not None and time.monotonic() < live.expires else None

    @property
    def count(self) -> int:
        return len(self._live)


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
