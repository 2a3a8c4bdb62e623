"""Keeps a butler registered with the Switchboard: at the start, and three times per time to live."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from butlers.config.butler import ButlerKind
from butlers.domain.errors import ButlersError
from butlers.domain.queues import NOTIFY, SWITCHBOARD
from butlers.domain.registration import Registration
from butlers.queue import leased_queue as queue
from butlers.queue.pause import Pause, apply_answer
from butlers.wire.codec import decode, encode

if TYPE_CHECKING:
    from butlers.daemon.butler import Butler

log = structlog.get_logger()

FIRST_RETRY_S = 0.1
LAST_RETRY_S = 5.0


class Registrar:
    def __init__(self, butler: Butler, switchboard_url: str) -> None:
        self._butler = butler
        self._url = switchboard_url
        self.connected = False
        self.registered = asyncio.Event()  # set by the first registration

    async def run(self) -> None:
        delay = FIRST_RETRY_S
        while True:
            registration = registration_of(self._butler)
            try:
                await self._register(registration)
            except Exception as error:  # noqa: BLE001  (a loop edge: it must register again later)
                self._disconnected(error)
                await asyncio.sleep(delay)
                delay = min(delay * 2, LAST_RETRY_S)
            else:
                self._connected()
                delay = FIRST_RETRY_S
                await asyncio.sleep(registration.liveness_ttl_s / 3)

    async def _register(self, registration: Registration) -> None:
        orders_before = self._butler.pause_state.orders
        arguments = {"registration": encode(registration), "back": not self.connected}
        answer = await self._butler.peers.call(SWITCHBOARD, self._url, "register", arguments)
        pause = decode(Pause, answer["pause"]) if answer["pause"] else None
        await apply_pause_answer(self._butler, pause, orders_before)

    def _connected(self) -> None:
        if not self.connected:
            log.info("registered with the switchboard", url=self._url)
        self.connected = True
        self.registered.set()

    def _disconnected(self, error: Exception) -> None:
        unexpected = not isinstance(error, ButlersError)
        if self.connected or unexpected:
            log.warning("switchboard unavailable", error=str(error), exc_info=unexpected)
        self.connected = False


async def apply_pause_answer(butler: Butler, pause: Pause | None, orders_before: int) -> None:
    """Apply a pause that began or ended while this butler was away, and send what waited for the
    Switchboard."""
    async with butler.database.transaction() as connection:
        await apply_answer(connection, pause, butler.pause_state, orders_before)
        await queue.make_due(connection, NOTIFY)


def registration_of(butler: Butler) -> Registration:
    config = butler.config
    assert config.switchboard is not None
    return Registration(
        name=config.name,
        url=butler.url,
        description=config.description,
        infrastructure=config.role is not ButlerKind.DOMAIN,
        reflexes=butler.reflexes.patterns if config.skills.reflexes else (),
        triggers=config.switchboard.triggers,
        capabilities=tuple(sorted(module.name for module in butler.modules.active)),
        contract_min=config.switchboard.route_contract_min,
        contract_max=config.switchboard.route_contract_max,
        liveness_ttl_s=config.switchboard.liveness_ttl_s,
    )
