"""The callers of tools: identified by their bearer token, counted while a call runs."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import math
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from fastmcp.server.auth import AccessToken, TokenVerifier
from fastmcp.server.dependencies import get_access_token, get_http_request

from butlers.domain.caller import OWNER_AND_PEERS, Caller, CallerKind
from butlers.domain.errors import NotAuthenticated, ShuttingDown
from butlers.sessions.guard import QUERY, LiveSession, SessionGuard
from butlers.wire.tokens import ServerIdentity


class ButlerTokens(TokenVerifier):
    def __init__(self, identity: ServerIdentity, guard: SessionGuard) -> None:
        super().__init__()
        self._identity = identity
        self._guard = guard

    async def verify_token(self, token: str) -> AccessToken | None:
        try:
            caller, session = self.identify(token)
        except NotAuthenticated:
            return None
        # The protocol library ties its own sessions to client_id and subject. A session that connects
        # before it begins keeps its principal.
        principal = f"{caller.kind}:{caller.name}:{session.address if session else ''}"
        return AccessToken(token=token, client_id=principal, subject=principal, scopes=[])

    def identify(self, token: str) -> tuple[Caller, LiveSession | None]:
        session = self._guard.find(token)
        if session is not None:
            return session.caller, session
        own = self._identity
        return own.key.verify(token, own.butler, own.instance), None

    def sign(self, purpose: str, text: str) -> str:
        """Return a signature of a text that only this butler can make."""
        key = self._identity.key.derive(f"{purpose}:{self._identity.butler}")
        return hmac.new(key.encode(), text.encode(), hashlib.sha256).hexdigest()

    def current(self) -> tuple[Caller, LiveSession | None]:
        """The caller of the request that is being served."""
        access = get_access_token()
        if access is None:
            raise NotAuthenticated
        caller, session = self.identify(access.token)
        named = get_http_request().query_params.get(QUERY)
        if named is not None and (session is None or named != str(session.address)):
            raise NotAuthenticated("the URL names another session than the token")
        if session is not None:
            session.connected = True
        return caller, session


class InFlight:
    """Counts running calls. While the butler shuts down, only calls of its sessions may begin."""

    def __init__(self) -> None:
        self.count = 0
        self.last_ended = -math.inf  # event loop time
        self._refused: frozenset[CallerKind] = frozenset()
        self._idle = asyncio.Event()
        self._idle.set()

    def reject_external_calls(self) -> None:
        self._refused = OWNER_AND_PEERS

    def refuse_all(self) -> None:
        self._refused = frozenset(CallerKind)

    async def wait_idle(self, timeout_s: float) -> bool:
        """Wait for the running calls. Return False if some have not ended in time."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), timeout_s)
        return self.count == 0

    def admit(self, caller: Caller) -> None:
        if caller.kind in self._refused:
            raise ShuttingDown

    @contextmanager
    def counted(self, caller: Caller) -> Iterator[None]:
        self.admit(caller)
        self.count += 1
        self._idle.clear()
        try:
            yield
        finally:
            self.count -= 1
            self.last_ended = asyncio.get_running_loop().time()
            if self.count == 0:
                self._idle.set()
