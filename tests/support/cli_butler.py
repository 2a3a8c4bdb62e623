"""A butler at work that thinks with a real CLI: the whole way from its spawner to a fake model."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psutil

from butlers.broker.server import Broker, serving
from butlers.config.settings import Settings
from butlers.db.provision import Provisioner
from butlers.domain.clock import uuid7
from butlers.domain.session import SessionRequest, SessionResult
from butlers.sessions.pool import ProcessPool
from butlers.wire.tokens import FleetKey
from support import npm
from support.cli_session import PATH
from support.clis import Cli
from support.fake_model import FakeModel
from support.in_process import InProcessButler
from support.messages import request_context
from support.tester_folder import write_tester, write_versions
from support.waiting import until

ENVIRONMENT = """[butler.env]
optional = ["ANTHROPIC_BASE_URL", "OPENAI_BASE_URL", "GOOGLE_GEMINI_BASE_URL"]
"""


@dataclass
class CliButler(InProcessButler):
    """A butler in the test's process whose runtime is a real CLI with a fake model behind it."""

    cli: Cli = field(kw_only=True)
    model: FakeModel = field(kw_only=True)

    @classmethod
    def create(
        cls,
        folder: Path,
        home: Path,
        key: FleetKey,
        provisioner: Provisioner,
        database: str,
        *,
        cli: Cli,
        model: FakeModel,
        runtime: str = "",
    ) -> CliButler:
        """``runtime``: more lines of ``[butler.runtime]``."""
        write_versions(folder / "versions")
        chosen = (
            f'[runtime]\ntype = "{cli.name}"\n[butler.runtime]\nmodel = "{cli.model}"\n{runtime}'
        )
        write_tester(folder / "tester", database, extra=ENVIRONMENT + chosen)
        tester, versions = folder / "tester", folder / "versions"
        return cls(tester, home, key, provisioner, versions, cli=cli, model=model)

    @asynccontextmanager
    async def running(
        self,
        *,
        shared_pool: ProcessPool | None = None,
        broker: Broker | None = None,
        brokered: bool = False,
        **environ: str,
    ) -> AsyncIterator[CliButler]:
        """``brokered``: with a key broker of its own."""
        path = f"{npm.installed('clis')}:{PATH}"
        given = {"PATH": path, **self.cli.environment(self.model.url), **environ}
        settings = Settings(self.home, environ=MappingProxyType(given))
        async with serving(Broker.of(settings)) if brokered else nullcontext(broker) as chosen:
            butler = self.make(settings=settings, shared_pool=shared_pool, broker=chosen)
            await butler.start()
            try:
                yield self
            finally:
                await self.close()

    @property
    def broker(self) -> Broker:
        assert self.butler.broker is not None
        return self.butler.broker

    def message(self, text: str = "do it") -> SessionRequest:
        request = replace(request_context(), request_id=uuid7())
        return SessionRequest(uuid7(), text, "route", request, request.request_id)

    def again(self, session: SessionRequest) -> SessionRequest:
        """A second session of the same request."""
        return replace(session, session_id=uuid7())

    async def run(self, session: SessionRequest | None = None) -> SessionResult:
        return await self.butler.spawner.run(session or self.message())

    async def trigger(self, prompt: str = "do it") -> dict[str, Any]:
        """Start a session as the owner does it by hand."""
        async with self.owner() as owner:
            found: dict[str, Any] = await owner.call("trigger", {"prompt": prompt}, timeout_s=120)
            return found

    async def ready(self, number: int = 1) -> None:
        await until(f"{number} to wait", lambda: self.butler.warm.own.count == number or None)

    def waiting(self) -> set[int]:
        """The processes whose HOME is a session's."""
        mark = str(self.home / "sessions")
        return {one.pid for one in psutil.process_iter() if _home(one).startswith(mark)}


OpenCliButler = Callable[..., AbstractAsyncContextManager[CliButler]]


def _home(process: psutil.Process) -> str:
    try:
        return process.environ().get("HOME", "")
    except psutil.Error:
        return ""
