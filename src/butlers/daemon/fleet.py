"""Several butlers in one process, with one database server and one key, stopped together."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

import structlog

from butlers.broker.server import Broker, serving
from butlers.config.butler import ButlerConfig, ButlerKind
from butlers.config.fleet import FleetConfig
from butlers.config.roster import check_distinct
from butlers.config.settings import Settings
from butlers.daemon.butler import Butler
from butlers.daemon.logs import adopt_library_logs
from butlers.db.provision import Provisioner
from butlers.db.server import choose_pool_size, database_server
from butlers.domain.tasks import end
from butlers.process.sandbox import sandbox_problem
from butlers.sessions.budget import FleetBudget
from butlers.sessions.pool import ProcessPool, shared_pool
from butlers.wire.tokens import FleetKey

log = structlog.get_logger()

Report = Callable[[Sequence[Butler]], None]

SECOND_SIGNAL_EXIT = 130
REPORT_S = 0.1
REGISTERED_WITHIN_S = 10.0


def _no_report(_butlers: Sequence[Butler]) -> None:
    return None


class Fleet:
    def __init__(
        self,
        configs: Sequence[ButlerConfig],
        settings: Settings,
        fleet: FleetConfig,
        *,
        report: Report = _no_report,
    ) -> None:
        check_distinct(configs)
        self._configs = configs
        self._settings = settings
        self._fleet = fleet
        self._report = report
        self._stop = asyncio.Event()
        self.failures: list[BaseException] = []

    async def run(self, ready: Callable[[Sequence[Butler]], None] = _no_report) -> None:
        """Start all butlers, serve until a signal, stop all."""
        self._handle_signals()
        adopt_library_logs()
        self._report_sandbox(await asyncio.to_thread(sandbox_problem))
        async with (
            database_server(self._settings) as admin,
            self._broker() as broker,
            self._shared_pool(broker) as pool,
        ):
            key = FleetKey.load(self._settings.home)
            provisioner = Provisioner(
                admin,
                key,
                isolated=self._fleet.isolation == "roles",
                pool_size=await choose_pool_size(admin, len(self._configs)),
            )
            budget = FleetBudget.of(self._fleet, self._settings.home)
            butlers = [
                Butler(
                    config,
                    settings=self._settings,
                    key=key,
                    provisioner=provisioner,
                    max_sessions=self._fleet.max_sessions,
                    shared_pool=pool,
                    fleet_budget=budget,
                    broker=broker,
                    sandbox_required=self._fleet.sandbox == "required",
                )
                for config in self._configs
            ]
            try:
                await self._start(butlers)
                await self._wait_registered(butlers)
                if not self._stop.is_set():
                    ready(butlers)
                await self._stop.wait()
            finally:
                await self._stop_all(butlers)

    def _report_sandbox(self, problem: str | None) -> None:
        if problem is not None:
            refused = "refused" if self._fleet.sandbox == "required" else "run without a sandbox"
            log.warning(
                "no sandbox", why=problem, scripts_from_elsewhere=refused, cli_sessions="unwalled"
            )

    def _broker(self) -> AbstractAsyncContextManager[Broker | None]:
        if not self._fleet.broker:
            return nullcontext()
        if self._fleet.debug_broker:
            log.warning("the key broker records prompts and answers", setting="debug_broker")
        return serving(Broker.of(self._settings, debug=self._fleet.debug_broker))

    def _shared_pool(
        self, broker: Broker | None
    ) -> AbstractAsyncContextManager[ProcessPool | None]:
        names = [config.name for config in self._configs]
        fleet = self._fleet
        return shared_pool(self._settings.home, fleet.warm_pool, names, fleet.max_sessions, broker)

    def stop(self) -> None:
        self._stop.set()

    async def _start(self, butlers: Sequence[Butler]) -> None:
        """Start all at once, each in its own task, so that its log lines carry its name."""
        starting: dict[asyncio.Task[Any], Butler] = {
            asyncio.create_task(butler.start()): butler for butler in butlers
        }
        stopping: asyncio.Task[Any] = asyncio.create_task(self._stop.wait())
        pending = set(starting)
        try:
            while pending and not self._stop.is_set():
                self._report(butlers)
                done, _ = await asyncio.wait(
                    {*pending, stopping}, timeout=REPORT_S, return_when=asyncio.FIRST_COMPLETED
                )
                for task in done & pending:
                    self._record_failure(starting[task], task.exception())
                pending -= done
        finally:
            stopping.cancel()
            for task in pending:
                task.cancel()
            await asyncio.gather(*pending, return_exceptions=True)
        self._report(butlers)

    async def _wait_registered(self, butlers: Sequence[Butler]) -> None:
        """Wait until the Switchboard knows every butler that started, so that no message is misrouted."""

        async def registered() -> None:
            for butler in butlers:
                if butler.is_ready and butler.registrar is not None:
                    await butler.registrar.registered.wait()

        tasks: set[asyncio.Task[Any]] = {
            asyncio.create_task(registered()),
            asyncio.create_task(self._stop.wait()),
        }
        done, _ = await asyncio.wait(
            tasks, timeout=REGISTERED_WITHIN_S, return_when=asyncio.FIRST_COMPLETED
        )
        if not done:
            log.warning("not every butler is registered yet", waited_s=REGISTERED_WITHIN_S)
        await end(*tasks)

    def _record_failure(self, butler: Butler, error: BaseException | None) -> None:
        """Record a butler that failed to start. The fleet cannot run without Switchboard and Messenger."""
        if error is None:
            return
        if len(self._configs) == 1 or butler.config.role is not ButlerKind.DOMAIN:
            raise error
        self.failures.append(error)
        hint = getattr(error, "hint", None)
        log.error("butler failed", butler=butler.config.name, error=str(error), hint=hint)

    async def _stop_all(self, butlers: Sequence[Butler]) -> None:
        outcomes = await asyncio.gather(
            *(asyncio.create_task(butler.stop()) for butler in butlers), return_exceptions=True
        )
        for butler, outcome in zip(butlers, outcomes, strict=True):
            if isinstance(outcome, BaseException):
                log.error("shutdown failed", butler=butler.config.name, exc_info=outcome)

    def _handle_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            with contextlib.suppress(NotImplementedError):
                loop.add_signal_handler(number, self._on_signal)

    def _on_signal(self) -> None:
        if self._stop.is_set():
            os._exit(SECOND_SIGNAL_EXIT)  # the second signal exits at once
        self._stop.set()
