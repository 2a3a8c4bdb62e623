"""A butler at work that thinks with a real CLI: the whole way from its spawner to a fake model."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psutil

from butlers.config.settings import Settings
from butlers.db.provision import Provisioner
from butlers.domain.ids import uuid7
from butlers.domain.session import SessionRequest, SessionResult
from butlers.sessions.blank import BlankPool
from butlers.wire.tokens import FleetKey
from support import npm
from support.cli_session import PATH
from support.clis import Cli
from support.fake_model import FakeModel
from support.in_process import House, request_context, until, write_tester, write_versions

ENVIRONMENT = """[butler.env]
optional = ["ANTHROPIC_BASE_URL", "OPENAI_BASE_URL", "GOOGLE_GEMINI_BASE_URL"]
"""


@dataclass
class Place:
    house: House
    model: FakeModel

    def message(self, text: str = "do it") -> SessionRequest:
        request = replace(request_context(), request_id=uuid7())
        return SessionRequest(uuid7(), text, "route", request, request.request_id)

    async def run(self, session: SessionRequest | None = None) -> SessionResult:
        return await self.house.butler.spawner.run(session or self.message())

    async def trigger(self, prompt: str = "do it") -> dict[str, Any]:
        """As a person does it, by hand."""
        async with self.house.owner() as owner:
            found: dict[str, Any] = await owner.call("trigger", {"prompt": prompt}, timeout_s=120)
            return found

    async def ready(self, number: int = 1) -> None:
        await until(f"{number} to wait", lambda: self.house.butler.warm.count == number or None)

    def waiting(self) -> set[int]:
        """The processes whose HOME is a session's."""
        mark = str(self.house.home / "sessions")
        return {one.pid for one in psutil.process_iter() if _home(one).startswith(mark)}


OpenPlace = Callable[..., AbstractAsyncContextManager[Place]]


def _home(process: psutil.Process) -> str:
    try:
        return process.environ().get("HOME", "")
    except psutil.Error:
        return ""


def make_house(
    folder: Path,
    home: Path,
    key: FleetKey,
    provisioner: Provisioner,
    database: str,
    cli: Cli,
    runtime: str = "",
) -> House:
    """``runtime``: more lines of ``[butler.runtime]``."""
    write_versions(folder / "versions")
    chosen = f'[runtime]\ntype = "{cli.name}"\n[butler.runtime]\nmodel = "{cli.model}"\n{runtime}'
    write_tester(folder / "tester", database, extra=ENVIRONMENT + chosen)
    return House(folder / "tester", home, key, provisioner, folder / "versions")


@asynccontextmanager
async def at_work(
    house: House, model: FakeModel, cli: Cli, *, blanks: BlankPool | None = None, **more: str
) -> AsyncIterator[Place]:
    path = f"{npm.installed('clis')}:{PATH}"
    environ = {"PATH": path, **cli.environment(model.url), **more}
    settings = Settings(house.home, environ=MappingProxyType(environ))
    butler = house.make(settings=settings, blanks=blanks)
    await butler.start()
    try:
        yield Place(house, model)
    finally:
        await house.close()
