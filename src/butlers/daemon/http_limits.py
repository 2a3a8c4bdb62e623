"""HTTP connections with limits that apply before a request is understood: time, size and number.

uvicorn's own limit of connections would answer 503 to every request, also to ``/health``.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

RECEIVE_S = (
    60.0  # from the first byte of a request, or the start of a connection, to the request's end
)
LINGER_S = 2.0  # to discard a body that was answered unread; a client that is still sending sees the answer
MAX_CONNECTIONS = 256
MAX_HEADER_BYTES = 32 * 1024


class LimitedProtocol(H11Protocol):
    """Closes connections whose request does not arrive in time, and the oldest of too many."""

    _receiving: asyncio.TimerHandle | None = None  # set while a request is incomplete
    _began = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._began = self.loop.time()
        self._set_limit(RECEIVE_S)
        if len(self.connections) > MAX_CONNECTIONS:
            self._close_oldest()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unset_limit()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._unset_limit()
        elif self._receiving is None and not self.transport.is_closing():
            self._set_limit(RECEIVE_S)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY and not self.transport.is_closing():
            self._unset_limit()
            self._set_limit(LINGER_S)

    def _close_oldest(self) -> None:
        others: list[Any] = [other for other in self.connections if other is not self]
        receiving = [other for other in others if other._receiving is not None]
        if receiving:
            min(receiving, key=lambda other: other._began).transport.abort()

    def _set_limit(self, seconds: float) -> None:
        self._receiving = self.loop.call_later(seconds, self.transport.abort)

    def _unset_limit(self) -> None:
        if self._receiving is not None:
            self._receiving.cancel()
            self._receiving = None
