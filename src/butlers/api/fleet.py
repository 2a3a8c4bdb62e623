"""The running butlers as the dashboard sees them: calls of their tools as the owner."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from butlers.domain.caller import CallerKind
from butlers.domain.errors import ButlersError
from butlers.domain.queues import MESSENGER, SWITCHBOARD
from butlers.wire import directory
from butlers.wire.answers import GatheredAnswers, gather_answers
from butlers.wire.client import McpClient
from butlers.wire.tokens import FleetCredential, FleetKey

CALLER = "dashboard"
READ_S = 10.0

Record = dict[str, Any]


class FleetClient:
    def __init__(self, home: Path) -> None:
        self.home = home
        self._key: FleetKey | None = None
        self._clients: dict[tuple[str, str], McpClient] = {}

    def names(self) -> list[str]:
        """Return the running butlers, the two core butlers last."""
        running = directory.entries(self.home)
        return sorted(running, key=lambda name: (name in (SWITCHBOARD, MESSENGER), name))

    def client(self, butler: str) -> McpClient:
        entry = directory.find(self.home, butler)
        if (butler, entry.url) not in self._clients:
            key = self._key = self._key or FleetKey.load(self.home)
            self._clients[butler, entry.url] = McpClient(
                butler, entry.url, FleetCredential(key, CallerKind.OWNER, CALLER, butler)
            )
        return self._clients[butler, entry.url]

    async def call(
        self, butler: str, tool: str, *, timeout_s: float = READ_S, **arguments: Any
    ) -> Any:
        return await self.client(butler).call(tool, arguments, timeout_s=timeout_s)

    async def ask_all(
        self, tool: str, *, names: Sequence[str] | None = None, **arguments: Any
    ) -> GatheredAnswers[Any]:
        async def ask(name: str) -> Any:
            return await self.call(name, tool, **arguments)

        return await gather_answers(self.names() if names is None else names, ask)

    async def list_all(
        self, tool: str, key: str, *, names: Sequence[str] | None = None, **arguments: Any
    ) -> tuple[list[Record], dict[str, ButlersError]]:
        """Return the records of a listing tool of every butler, with the butler's name in each."""
        answers = await self.ask_all(tool, names=names, **arguments)
        records = [
            {"butler": name, **record}
            for name, answer in answers.found.items()
            for record in answer[key]
        ]
        return records, dict(answers.failed)

    async def close(self) -> None:
        for client in self._clients.values():
            await client.close()
