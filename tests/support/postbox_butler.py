"""A place where the fixture butler runs as a whole daemon, with clients and a look into its tables."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from butlers.config.settings import Settings
from butlers.daemon.butler import Butler
from butlers.db.provision import Provisioner
from butlers.domain.caller import CallerKind
from butlers.domain.ids import uuid7
from butlers.domain.session import SessionRequest
from butlers.wire.tokens import FleetKey
from support import mcp_clients as clients
from support.mcp_clients import Connect, ToolClient
from support.postbox import load_config, write_postbox

Start = Callable[..., Awaitable[Butler]]


@dataclass
class Place:
    directory: Path
    home: Path
    key: FleetKey
    provisioner: Provisioner
    database_name: str
    butlers: list[Butler] = field(default_factory=list)

    def write(self, *arguments: Any, extra: str = "", **options: Any) -> None:
        """The folder of the next butler."""
        shutil.rmtree(self.directory, ignore_errors=True)
        place = f'db.name = "{self.database_name}"'
        write_postbox(self.directory, *arguments, extra=f"{extra}\n{place}", **options)

    def make(self, **environ: str) -> Butler:
        settings = Settings.from_environ({**environ, "BUTLERS_HOME": str(self.home)})
        config = load_config(self.directory)
        self.butlers.append(
            Butler(config, settings=settings, key=self.key, provisioner=self.provisioner)
        )
        return self.butlers[-1]

    async def start(self, *arguments: Any, **options: Any) -> Butler:
        self.write(*arguments, **options)
        butler = self.make()
        await butler.start()
        return butler

    @property
    def butler(self) -> Butler:
        return self.butlers[-1]

    def module(self, name: str) -> ModuleType:
        """The package of one of its modules, as it was imported."""
        return sys.modules[f"butlers_roster_{self.butler.config.name}.modules.{name}"]

    def client(
        self, kind: CallerKind = CallerKind.OWNER, connect: Connect = clients.fastmcp_modern
    ) -> AbstractAsyncContextManager[ToolClient]:
        name = "switchboard" if kind is CallerKind.PEER else "owner"
        return connect(self.butler.url, self.key.mint(kind, name, self.butler.config.name))

    async def offered(self) -> list[str]:
        """The tools that clients of any kind are shown, each once."""
        session = SessionRequest(session_id=uuid7(), prompt="test", trigger_source="test")
        names: set[str] = set()
        for kind in (CallerKind.OWNER, CallerKind.PEER):
            async with self.client(kind) as client:
                names |= await client.names()
        with self.butler.guard.admit(session) as token:
            async with clients.fastmcp_modern(self.butler.url, token) as client:
                names |= await client.names()
        return sorted(names)

    async def rows(self, sql: str, *arguments: Any) -> list[dict[str, Any]]:
        async with self.butler.database.transaction() as connection:
            return [dict(row) for row in await connection.fetch(sql, *arguments)]
