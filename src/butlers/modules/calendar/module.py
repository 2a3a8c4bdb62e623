"""The calendar module: its tools, its migrations and its lines of the brief."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, time, timedelta

from butlers.db.database import Database
from butlers.domain.clock import SystemClock
from butlers.domain.module import BriefPart
from butlers.modules.base import CredentialSource, Module, ToolMeta
from butlers.modules.calendar import store
from butlers.modules.calendar.config import CalendarConfig
from butlers.modules.calendar.sync.worker import QUEUE, SyncWorker, declare_accounts
from butlers.modules.calendar.tools import butler_events, events, exchange
from butlers.modules.calendar.words import occurrence_time, window_of
from butlers.tools.context import CallContext
from butlers.tools.role import QueueWork, RoleParts

BRIEF_LINES = 8


class CalendarModule(Module):
    """One view over the owner's calendars, and a local calendar that needs no account."""

    name = "calendar"
    config_schema = CalendarConfig
    tools = (*events.TOOLS, *exchange.TOOLS, *butler_events.TOOLS)

    config: CalendarConfig

    def __init__(self) -> None:
        self._credentials: CredentialSource | None = None

    async def on_startup(
        self, config: CalendarConfig, db: Database, credential_store: CredentialSource | None = None
    ) -> None:
        self._credentials = credential_store
        await declare_accounts(db, config.accounts, SystemClock().now(), config.interval)

    def workers(self, parts: RoleParts) -> Sequence[QueueWork]:
        worker = SyncWorker(
            parts.config.name,
            parts.database,
            parts.clock,
            parts.config.timezone,
            self.config.accounts,
            self._secret,
            self.config.interval,
        )
        # One at a time: two synchronizations of one calendar would read the same changes.
        return (QueueWork(QUEUE, worker.process, 1),)

    async def _secret(self, name: str) -> str | None:
        return await self._credentials.resolve(name) if self._credentials else None

    def migration_revisions(self) -> str:
        return "calendar"

    def tool_metadata(self) -> Mapping[str, ToolMeta]:
        return {"calendar_create_event": ToolMeta(arg_sensitivities={"attendees": True})}

    async def brief(self, ctx: CallContext, part: BriefPart) -> Sequence[str]:
        """Return today's events in the morning and tomorrow's in the evening."""
        day = ctx.now.astimezone(ctx.zone).date()
        if part is BriefPart.EVENING:
            day += timedelta(days=1)
        first = datetime.combine(day, time())
        window = window_of(ctx.zone, first, first + timedelta(days=1))
        found = await store.occurrences_in(ctx.connection, window)
        return [
            f"{one.event.title} ({occurrence_time(one, ctx.zone)})" for one in found[:BRIEF_LINES]
        ]
