"""The guard: which sessions are alive, and what their tokens open.

A session's token is random, opens only the butler that spawned it, and ends with the session. Only its
hash is kept, so that nothing in memory or in a log can be used to call.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from butlers.domain.caller import Caller, CallerKind
from butlers.domain.request import RequestContext
from butlers.domain.session import SessionRequest
from butlers.store.journal import CallCounter

PREFIX = "bs"


@dataclass(frozen=True, slots=True)
class LiveSession:
    caller: Caller
    request: RequestContext | None
    calls: CallCounter | None  # None: nothing to journal against


class SessionGuard:
    def __init__(self, butler: str) -> None:
        self._butler = butler
        self._live: dict[str, LiveSession] = {}

    @contextmanager
    def admit(self, session: SessionRequest) -> Iterator[str]:
        """Mint the token of one session; it opens nothing once the block is left."""
        token = f"{PREFIX}.{secrets.token_urlsafe(32)}"
        digest = _digest(token)
        caller = Caller(CallerKind.SESSION, self._butler, session.session_id, session.request_id)
        counter = CallCounter(session.request_id) if session.request_id else None
        self._live[digest] = LiveSession(caller, session.request, counter)
        try:
            yield token
        finally:
            del self._live[digest]

    def find(self, token: str) -> LiveSession | None:
        return self._live.get(_digest(token))

    @property
    def count(self) -> int:
        return len(self._live)


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
