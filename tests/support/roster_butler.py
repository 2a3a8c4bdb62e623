"""A shipped domain butler in the test's process, called at a time and in a zone that the test sets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from butlers.domain.clock import uuid7
from butlers.domain.message import RequestContext
from butlers.sdk import JobContext
from butlers.wire.client import McpClient
from support.in_process import InProcessButler, MakeButler
from support.messages import request_context

NOON = datetime(2026, 5, 4, 10, tzinfo=UTC)  # Monday, 12:00 in Berlin
TOKENS_PER_BYTE = 1 / 4
MAX_TOOLS, MAX_TOKENS = 25, 3_500


@dataclass
class RosterButler:
    """Calls tools of a running butler as sessions of the owner's messages do."""

    butler: InProcessButler
    now: datetime = NOON

    def message(self, *, sender: str | None = None) -> RequestContext:
        """A message of the owner, or of another person."""
        made = replace(request_context(), received_at=self.now)
        return replace(made, source_sender_identity=sender, sender_roles=()) if sender else made

    @asynccontextmanager
    async def session(self, *, sender: str | None = None) -> AsyncIterator[McpClient]:
        async with self.butler.session(request=self.message(sender=sender)) as client:
            yield client

    async def call(self, tool: str, **arguments: Any) -> Any:
        """Call a tool for a message of its own."""
        async with self.session() as client:
            return await client.call(tool, arguments)

    async def undo(self) -> str:
        return str((await self.call("undo"))["text"])

    async def rows(self, sql: str, *arguments: Any) -> list[dict[str, Any]]:
        return await self.butler.rows(sql, *arguments)

    def tool_budget(self) -> tuple[int, int]:
        """Return the number of the butler's own tools for sessions and the tokens of their schemas."""
        running = self.butler.butler
        own = {
            spec.__tool__.name  # type: ignore[attr-defined]
            for module in running.modules
            if module.name == running.config.name
            for spec in module.tools
        } & running.tool_bytes.keys()
        assert own
        return len(own), round(sum(running.tool_bytes[name] for name in own) * TOKENS_PER_BYTE)


async def start_roster_butler(
    make_butler: MakeButler, name: str, zone: str = "Europe/Berlin"
) -> RosterButler:
    made = make_butler(name)
    file = made.directory / "butler.toml"
    file.write_text(file.read_text().replace("[butler]\n", f'[butler]\ntimezone = "{zone}"\n', 1))
    await made.start()
    return RosterButler(made)


async def run_check(roster: RosterButler, check: Any) -> bool:
    """Run a schedule's check at the butler's time, on a connection of the butler itself."""
    butler = roster.butler.butler
    async with butler.database.transaction() as connection:
        context = JobContext(
            butler=butler.config.name,
            task="test",
            arguments={},
            due_at=roster.now,
            run_id=uuid7(),
            clock=butler.clock,
            zone=ZoneInfo(butler.config.timezone),
            connection=connection,
        )
        found: bool = await check(context)
        return found
