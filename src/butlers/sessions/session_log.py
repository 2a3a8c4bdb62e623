"""The session log as a butler holds it, for whoever is in no call of a tool."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from uuid import UUID

import structlog

from butlers.db.database import Database
from butlers.domain.session import SessionResult
from butlers.sessions.log_rows import close_crashed, close_session, get_session, list_sessions

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class SessionLog:
    database: Database

    async def recent(self, limit: int = 20, offset: int = 0) -> list[dict[str, Any]]:
        """Newest first."""
        async with self.database.transaction() as connection:
            return await list_sessions(connection, limit, offset)

    async def get(self, session_id: UUID) -> dict[str, Any] | None:
        """One session in full, with its tool calls."""
        async with self.database.transaction() as connection:
            return await get_session(connection, session_id)

    async def close(
        self,
        session_id: UUID,
        result: SessionResult,
        duration_ms: int,
        cost_usd: Decimal | None = None,
    ) -> None:
        async with self.database.transaction() as connection:
            await close_session(connection, session_id, result, duration_ms, cost_usd)

    async def close_crashed(self) -> None:
        """End those that ran when an earlier daemon of this butler was killed."""
        async with self.database.transaction() as connection:
            for session_id in await close_crashed(connection):
                log.warning("session crashed with its butler", session=str(session_id))
