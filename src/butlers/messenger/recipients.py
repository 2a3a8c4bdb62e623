"""Whom the Messenger may write to without asking: those the owner approved, and those who wrote first."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from butlers.db.database import Connection

KnownBy = Literal["approved", "wrote"]


async def is_known(connection: Connection, channel: str, target: str) -> bool:
    found = await connection.fetchval(
        "SELECT true FROM recipients WHERE channel = $1 AND target = $2", channel, target
    )
    return bool(found)


async def remember(
    connection: Connection, channel: str, target: str, known_by: KnownBy, now: datetime
) -> None:
    await connection.execute(
        """
        INSERT INTO recipients (channel, target, known_by, since) VALUES ($1, $2, $3, $4)
        ON CONFLICT (channel, target) DO NOTHING
        """,
        channel,
        target,
        known_by,
        now,
    )
