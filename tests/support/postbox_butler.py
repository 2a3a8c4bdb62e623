"""The fixture butler with modules, as a whole daemon in the test's process."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from butlers.config.settings import Settings
from butlers.daemon.butler import Butler
from butlers.domain.caller import CallerKind
from butlers.domain.clock import uuid7
from butlers.domain.session import SessionRequest
from support import mcp_clients as clients
from support.in_process import InProcessButler
from support.mcp_clients import Connect, ToolClient
from support.postbox import write_postbox

Start = Callable[..., Awaitable[Butler]]


@dataclass
class PostboxButler(InProcessButler):
    database_name: str = field(kw_only=True)

    def write(self, *arguments: Any, extra: str = "", **options: Any) -> None:
        """Write the folder of the next butler."""
        shutil.rmtree(self.directory, ignore_errors=True)
        place = f'db.name = "{self.database_name}"'
        write_postbox(self.directory, *arguments, extra=f"{extra}\n{place}", **options)

    def make_in(self, **environ: str) -> Butler:
        """Make a butler that has these environment variables and no others."""
        return self.make(
            settings=Settings.from_environ({**environ, "BUTLERS_HOME": str(self.home)})
        )

    async def start(self, *arguments: Any, **options: Any) -> Butler:
        self.write(*arguments, **options)
        butler = self.make_in()
        await butler.start()
        return butler

    def module(self, name: str) -> ModuleType:
        """The package of one of its modules, as it was imported."""
        return sys.modules[f"butlers_roster_{self.butler.config.name}.modules.{name}"]

    def connect(
        self, kind: CallerKind = CallerKind.OWNER, connect: Connect = clients.fastmcp_modern
    ) -> AbstractAsyncContextManager[ToolClient]:
        name = "switchboard" if kind is CallerKind.PEER else "owner"
        return connect(self.butler.url, self.token(kind, name))

    async def offered(self) -> list[str]:
        """The tools that clients of any kind are shown, each once."""
        session = SessionRequest(session_id=uuid7(), prompt="test", trigger_source="test")
        names: set[str] = set()
        for kind in (CallerKind.OWNER, CallerKind.PEER):
            async with self.connect(kind) as client:
                names |= await client.names()
        with self.butler.guard.admit(session) as token:
            async with clients.fastmcp_modern(self.butler.url, token) as client:
                names |= await client.names()
        return sorted(names)
