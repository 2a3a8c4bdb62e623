"""Keeps a butler known to the Switchboard: registers at start and again within each time to live."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import structlog

from butlers.domain.errors import ButlersError
from butlers.domain.queues import SWITCHBOARD
from butlers.domain.registration import Registration
from butlers.queue.pause import Pause, PauseState
from butlers.wire.codec import decode, encode
from butlers.wire.peers import Peers

log = structlog.get_logger()

FIRST_RETRY_S = 0.1
LAST_RETRY_S = 5.0


class Registrar:
    def __init__(
        self,
        peers: Peers,
        switchboard_url: str,
        describe: Callable[[], Registration],
        apply_pause: Callable[[Pause | None, int], Awaitable[None]],
        pause_state: PauseState,
    ) -> None:
        self._peers = peers
        self._url = switchboard_url
        self._describe = describe
        self._apply_pause = apply_pause
        self._pause_state = pause_state
        self.connected = False

    async def run(self) -> None:
        delay = FIRST_RETRY_S
        while True:
            registration, orders_before = self._describe(), self._pause_state.orders
            try:
                answer = await self._peers.call(
                    SWITCHBOARD, self._url, "register", self._said(registration)
                )
                pause = decode(Pause, answer["pause"]) if answer["pause"] else None
                await self._apply_pause(pause, orders_before)
            except Exception as error:  # noqa: BLE001  (a loop edge: else it is never found again)
                self._lost(error)
                await asyncio.sleep(delay)
                delay = min(delay * 2, LAST_RETRY_S)
            else:
                self._found()
                delay = FIRST_RETRY_S
                await asyncio.sleep(registration.liveness_ttl_s / 3)

    def _said(self, registration: Registration) -> dict[str, Any]:
        return {"registration": encode(registration), "back": not self.connected}

    def _found(self) -> None:
        if not self.connected:
            log.info("registered with the switchboard", url=self._url)
        self.connected = True

    def _lost(self, error: Exception) -> None:
        unforeseen = not isinstance(error, ButlersError)
        if self.connected or unforeseen:
            log.warning("the switchboard is away", error=str(error), exc_info=unforeseen)
        self.connected = False
