"""SQL of memory_episodes: what was said, turn by turn, and what consolidation still has to read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg

from butlers.db.database import Connection
from butlers.domain.clock import uuid7
from butlers.modules.memory.items import SOURCE_COLUMNS, ItemSource, content_hash
from butlers.modules.memory.search.traits import traits_of


@dataclass(frozen=True, slots=True)
class NewEpisode:
    content: str
    speaker: str
    conversation: str
    importance: float = 5.0
    expires_at: datetime | None = None
    idempotency_key: str | None = None
    consolidation: str = "pending"
    metadata: Mapping[str, Any] = field(default_factory=dict)


async def insert_episode(
    connection: Connection, source: ItemSource, episode: NewEpisode
) -> UUID | None:
    """Insert the episode as the last turn of its conversation. Return None if its key is there already."""
    found: UUID | None = await connection.fetchval(
        f"""
        INSERT INTO memory_episodes
            (id, conversation, turn, speaker, content, content_hash, traits, importance, expires_at,
             idempotency_key, consolidation, metadata, {SOURCE_COLUMNS})
        VALUES ($1, $2,
                coalesce((SELECT max(turn) + 1 FROM memory_episodes WHERE conversation = $2), 0),
                $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)
        ON CONFLICT (idempotency_key) DO NOTHING RETURNING id
        """,
        uuid7(),
        episode.conversation,
        episode.speaker,
        episode.content,
        content_hash(episode.content),
        int(traits_of(episode.content)),
        episode.importance,
        episode.expires_at,
        episode.idempotency_key,
        episode.consolidation,
        dict(episode.metadata),
        *source.columns(),
    )
    return found


async def pending_episodes(connection: Connection, limit: int) -> list[asyncpg.Record]:
    """Return the oldest episodes that consolidation has not read."""
    rows: list[asyncpg.Record] = await connection.fetch(
        """
        SELECT * FROM memory_episodes WHERE consolidation = 'pending' ORDER BY id LIMIT $1
        """,
        limit,
    )
    return rows


async def lock_pending(connection: Connection, ids: Sequence[UUID]) -> bool:
    """Lock the episodes that are still pending. Return whether there is one."""
    rows = await connection.fetch(
        """
        SELECT id FROM memory_episodes WHERE id = ANY($1::uuid[]) AND consolidation = 'pending'
        ORDER BY id FOR UPDATE
        """,
        list(ids),
    )
    return bool(rows)


async def settle_episodes(
    connection: Connection,
    ids: Sequence[UUID],
    state: str,
    *,
    session_id: UUID | None = None,
    error: str | None = None,
) -> None:
    await connection.execute(
        """
        UPDATE memory_episodes SET consolidation = $2, consolidated_by = $3, last_error = $4
        WHERE id = ANY($1::uuid[]) AND consolidation = 'pending'
        """,
        list(ids),
        state,
        session_id,
        error,
    )


async def delete_expired(connection: Connection, now: datetime, keep: int) -> dict[str, int]:
    """Delete expired episodes, then the oldest consolidated ones above ``keep``."""
    expired = await connection.execute(
        "DELETE FROM memory_episodes WHERE expires_at <= $1 AND consolidation <> 'pending'", now
    )
    stale = await connection.execute(
        "DELETE FROM memory_episodes WHERE expires_at <= $1::timestamptz - interval '7 days'", now
    )
    surplus = await connection.execute(
        """
        DELETE FROM memory_episodes WHERE id IN (
            SELECT id FROM memory_episodes WHERE consolidation <> 'pending'
            ORDER BY id DESC OFFSET $1)
        """,
        keep,
    )
    return {
        "expired": int(expired.split()[-1]) + int(stale.split()[-1]),
        "surplus": int(surplus.split()[-1]),
    }
