"""The guard: live sessions and the tools that their tokens open.

A session's token is random. It opens only the butler that spawned it, only the tools that the session was
given, and only while it runs. Only its hash is kept, so nothing in memory or in a log can be used as a token.
"""

from __future__ import annotations

import hashlib
import math
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from uuid import UUID

from butlers.domain.caller import Caller, CallerKind
from butlers.domain.clock import uuid7
from butlers.domain.errors import TooManyCalls
from butlers.domain.message import RequestContext
from butlers.domain.session import SessionRequest
from butlers.queue.journal import CallCounter

PREFIX = "bs"
HEED = 3  # calls above the limit that are refused before the session is stopped
QUERY = "runtime_session_id"  # in the URL of a session, to identify it in server logs


@dataclass(slots=True)
class Observed:
    """Facts about a session that only our own server knows."""

    outside: set[str] = field(default_factory=set)  # tools by which it read text of other people
    changed: bool = False  # a call of it had an effect
    limit: str | None = None  # the limit that it has reached
    outage: str | None = None  # why its last call with an effect could not be carried out
    stop: Callable[[], object] = lambda: None  # ends it, if it goes on after that


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
    changed: bool = False  # a call had an effect
    max_calls: int | None = None
    is_lent: bool = False  # to a script, which is one call of its session
    reads_pages: bool = True  # a script and a reflex read whole results
    made: int = 0  # calls so far
    pages: dict[str, str] = field(
        default_factory=dict
    )  # long results, of which it has the first page
    watched: Mapping[UUID, Observed] = field(default_factory=dict)

    def begin(self, session: SessionRequest, lifetime_s: float) -> None:
        self.caller = replace(
            self.caller, session_id=session.session_id, request_id=session.request_id
        )
        self.request = session.request
        self.calls = CallCounter(session.request_id) if session.request_id else None
        self.tools = session.tools
        self.outside |= session.outside
        self.expires = time.monotonic() + lifetime_s
        self.begun = True

    @property
    def observed(self) -> Observed | None:
        session_id = self.caller.session_id
        return None if session_id is None else self.watched.get(session_id)

    def note_outage(self, why: str | None) -> None:
        """Remember that the database failed a call, or (None) that a later call was carried out."""
        if (seen := self.observed) is not None:
            seen.outage = why

    def count_call(self) -> None:
        """Raise TooManyCalls above the limit, and stop a session that does not heed it."""
        self.made += 1
        if self.is_lent or self.max_calls is None or self.made <= self.max_calls:
            return
        why = f"the session has used its {self.max_calls} tool calls"
        if (seen := self.observed) is not None:
            seen.limit = why
            if self.made > self.max_calls + HEED:
                seen.stop()
        raise TooManyCalls(why)

    def may_call(self, tool: str) -> bool:
        return tool not in self.hidden if self.tools is None else tool in self.tools


class SessionGuard:
    def __init__(
        self, butler: str, hidden: frozenset[str] = frozenset(), max_calls: int | None = None
    ) -> None:
        self._butler = butler
        self._max_calls = max_calls
        self._hidden = hidden
        self._live: dict[str, LiveSession] = {}
        self._watched: dict[UUID, Observed] = {}

    @contextmanager
    def admit(
        self,
        session: SessionRequest,
        *,
        lifetime_s: float = math.inf,
        reads_pages: bool = True,
    ) -> Iterator[str]:
        """Make the token of one session; it is valid during the block."""
        with self.reserve(session.session_id) as (token, live):
            live.reads_pages = reads_pages
            live.begin(session, lifetime_s)
            yield token

    @contextmanager
    def reserve(self, address: UUID) -> Iterator[tuple[str, LiveSession]]:
        """Make a token for a session that is not known yet: a warm process connects with it."""
        token = f"{PREFIX}.{secrets.token_urlsafe(32)}"
        caller = Caller(CallerKind.SESSION, self._butler, address)
        live = LiveSession(
            address,
            caller,
            hidden=self._hidden,
            max_calls=self._max_calls,
            watched=self._watched,
        )
        self._live[_digest(token)] = live
        try:
            yield token, live
        finally:
            del self._live[_digest(token)]
            if live.caller.session_id in self._watched:
                watched = self._watched[live.caller.session_id]
                watched.outside |= live.outside
                watched.changed = watched.changed or live.changed

    @contextmanager
    def watch(self, session_id: UUID) -> Iterator[Observed]:
        """Collect what a session reads and does. It is complete when the session's token is gone."""
        self._watched[session_id] = Observed()
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
            live.is_lent, live.reads_pages = True, False
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
