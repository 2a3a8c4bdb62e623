"""A butler with the memory module, and people who tell it things."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from butlers.domain.message import RequestContext, RouteDecision, RouteRequest
from butlers.modules.memory import MemoryModule
from butlers.wire.client import McpClient
from butlers.wire.codec import encode
from support.in_process import InProcessButler
from support.messages import request_context

SECTION = "[modules.memory]\n"
TABLES = ("memory_episodes", "memory_facts", "memory_rules", "memory_entities", "memory_events")


def message_of(sender: str | None = None, at: datetime | None = None) -> RequestContext:
    """The context of a message of the owner, or of another person."""
    request = replace(request_context(), received_at=at or datetime.now(UTC))
    if sender is None:
        return request
    return replace(request, source_sender_identity=sender, sender_roles=())


@dataclass
class MemoryButler:
    """The test butler with memory."""

    inner: InProcessButler

    @property
    def module(self) -> MemoryModule:
        found: MemoryModule = self.inner.butler.modules.instance(MemoryModule)
        return found

    async def tell(
        self, text: str, sender: str | None = None, at: datetime | None = None
    ) -> RequestContext:
        """Route a message to the butler; it is recorded before this returns."""
        request = message_of(sender, at)
        decision = RouteDecision("tester", "fallback", "test")
        route = RouteRequest(request, "tester", text, decision)
        async with self.inner.peer("switchboard") as switchboard:
            await switchboard.call("route.execute", {"route": encode(route)})
        return request

    async def owner(self, tool: str, **arguments: Any) -> Any:
        async with self.inner.owner() as owner:
            return await owner.call(tool, arguments)

    def session(
        self, sender: str | None = None, at: datetime | None = None
    ) -> AbstractAsyncContextManager[McpClient]:
        """A live session for a message of the owner, or of another person."""
        return self.inner.session(request=message_of(sender, at))

    async def call(
        self, tool: str, sender: str | None = None, at: datetime | None = None, **arguments: Any
    ) -> Any:
        """One call in a session of its own."""
        async with self.session(sender, at) as session:
            return await session.call(tool, arguments)

    async def facts(self, **columns: Any) -> list[dict[str, Any]]:
        where = " AND ".join(f"{name} = ${n}" for n, name in enumerate(columns, 1)) or "true"
        return await self.inner.rows(
            f"SELECT * FROM memory_facts WHERE {where} ORDER BY observed_at, id", *columns.values()
        )

    async def contains(self, text: str) -> list[str]:
        """Names of the tables of this butler in which a text occurs anywhere."""
        tables = await self.inner.rows(
            "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
        )
        found = []
        for table in sorted(row["tablename"] for row in tables):
            (row,) = await self.inner.rows(
                f'SELECT count(*) AS n FROM "{table}" AS r WHERE strpos(to_jsonb(r)::text, $1) > 0',
                text,
            )
            found += [table] if row["n"] else []
        return found

    async def block(self, text: str, sender: str | None = None, at: datetime | None = None) -> str:
        shown = await self.call("memory_context", sender, at, topic=text)
        return str(shown["context"])


def uuid_of(shown: dict[str, Any]) -> UUID:
    return UUID(shown["id"])
