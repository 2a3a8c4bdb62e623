"""Several butlers in one process: one database server, one key, one ending."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Sequence

import structlog

from butlers.config.butler import ButlerConfig
from butlers.config.fleet import FleetConfig
from butlers.config.roster import check_distinct
from butlers.config.settings import Settings
from butlers.daemon.butler import Butler
from butlers.store.provision import Provisioner
from butlers.store.server import database_server
from butlers.wire.tokens import FleetKey

log = structlog.get_logger()

Report = Callable[[Sequence[Butler]], None]

SECOND_SIGNAL_EXIT = 130


def _say_nothing(_butlers: Sequence[Butler]) -> None:
    return None


class Fleet:
    def __init__(
        self,
        configs: Sequence[ButlerConfig],
        settings: Settings,
        fleet: FleetConfig,
        *,
        report: Report = _say_nothing,
    ) -> None:
        check_distinct(configs)
        self._configs = configs
        self._settings = settings
        self._fleet = fleet
        self._report = report
        self._stop = asyncio.Event()

    async def run(self, ready: Callable[[Sequence[Butler]], None] = _say_nothing) -> None:
        """Start all, serve until a signal, stop all."""
        self._take_signals()
        async with database_server(self._settings) as admin:
            key = FleetKey.load(self._settings.home)
            provisioner = Provisioner(admin, key, walls=self._fleet.isolation == "roles")
            butlers = [
                Butler(config, home=self._settings.home, key=key, provisioner=provisioner)
                for config in self._configs
            ]
            try:
                await self._start(butlers)
                ready(butlers)
                await self._stop.wait()
            finally:
                await self._end(butlers)

    def stop(self) -> None:
        self._stop.set()

    async def _start(self, butlers: Sequence[Butler]) -> None:
        """All at once, each in a task of its own, so that its log lines carry its name."""
        starting = [asyncio.create_task(butler.start()) for butler in butlers]
        stopping = asyncio.create_task(self._stop.wait())
        try:
            while not all(task.done() for task in starting):
                self._report(butlers)
                pending = [task for task in starting if not task.done()]
                await asyncio.wait([*pending, stopping], timeout=0.1, return_when="FIRST_COMPLETED")
                if self._stop.is_set() or any(t.done() and t.exception() for t in starting):
                    break
            for task in starting:
                if task.done():
                    task.result()
        finally:
            stopping.cancel()
            for task in starting:
                task.cancel()
            await asyncio.gather(*starting, return_exceptions=True)
        self._report(butlers)

    async def _end(self, butlers: Sequence[Butler]) -> None:
        ended = await asyncio.gather(
            *(asyncio.create_task(butler.stop()) for butler in butlers), return_exceptions=True
        )
        for butler, outcome in zip(butlers, ended, strict=True):
            if isinstance(outcome, BaseException):
                log.error("shutdown failed", butler=butler.config.name, exc_info=outcome)

    def _take_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            with contextlib.suppress(NotImplementedError):
                loop.add_signal_handler(number, self._on_signal)

    def _on_signal(self) -> None:
        if self._stop.is_set():
            os._exit(SECOND_SIGNAL_EXIT)  # asked twice: at once
        self._stop.set()
