"""The other butlers, as one of them sees them: a client each, with a token that speaks for the caller."""

from __future__ import annotations

from typing import Any

from butlers.domain.caller import CallerKind
from butlers.wire.client import McpClient
from butlers.wire.tokens import FleetKey


class Peers:
    def __init__(self, own_name: str, key: FleetKey) -> None:
        self._own_name = own_name
        self._key = key
        self._clients: dict[tuple[str, str], McpClient] = {}

    async def call(self, peer: str, url: str, tool: str, arguments: dict[str, Any]) -> Any:
        return await self._client(peer, url).call(tool, arguments)

    async def close(self) -> None:
        for client in self._clients.values():
            await client.close()

    def _client(self, peer: str, url: str) -> McpClient:
        if (peer, url) not in self._clients:
            self._clients[peer, url] = McpClient(
                peer, url, lambda: self._key.mint(CallerKind.PEER, self._own_name, peer)
            )
        return self._clients[peer, url]
