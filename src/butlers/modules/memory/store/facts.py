"""SQL of memory_facts: one active fact per entity, predicate and source, with its history.

A fact of the same source supersedes the earlier one in the same transaction. A fact of another source with
another value stands beside it, linked as a contradiction, until the owner settles it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg

from butlers.db.database import Connection
from butlers.domain.clock import uuid7
from butlers.domain.errors import NotFound
from butlers.modules.memory.items import (
    EXPIRED,
    SOURCE_COLUMNS,
    ItemSource,
    Permanence,
    Relation,
    effective_confidence_sql,
    fact_hash,
    normalized,
)
from butlers.modules.memory.search.traits import traits_of
from butlers.modules.memory.store.events import link, log_event


@dataclass(frozen=True, slots=True)
class NewFact:
    subject: str
    predicate: str
    content: str
    entity_id: UUID | None = None
    qualifier: str = ""
    scope: str = "global"
    permanence: Permanence = Permanence.STANDARD
    importance: float = 5.0
    confidence: float = 1.0
    valid_from: datetime | None = None
    valid_to: datetime | None = None
    object_entity_id: UUID | None = None
    source_episode_id: UUID | None = None
    tags: Sequence[str] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StoredFact:
    id: UUID
    status: str  # stored, superseded, confirmed, contradicts, historic
    superseded: UUID | None = None
    contradicts: tuple[UUID, ...] = ()


async def store_fact(connection: Connection, source: ItemSource, fact: NewFact) -> StoredFact:
    """Store a fact. A restatement confirms the known one; an older value does not replace a newer one."""
    await _lock_subject(connection, fact)
    rivals = await _active_rivals(connection, fact)
    same = [row for row in rivals if normalized(row["content"]) == normalized(fact.content)]
    own = [row for row in rivals if _same_source(row, source)]
    if restated := [row for row in same if _same_source(row, source)]:
        await confirm_fact(connection, source, restated[0]["id"])
        return StoredFact(restated[0]["id"], "confirmed")
    newer = next((row for row in own if _is_newer(row, fact, source)), None)
    if newer is not None:
        return await _store_historic(connection, source, fact, newer)
    return await _store_active(connection, source, fact, rivals, own)


async def _lock_subject(connection: Connection, fact: NewFact) -> None:
    """Serialize writers of one entity and predicate, so that one of two new values wins cleanly."""
    key = f"memory:{fact.entity_id or fact.subject.lower()}:{fact.predicate}:{fact.scope}"
    await connection.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", key)


async def _active_rivals(connection: Connection, fact: NewFact) -> list[asyncpg.Record]:
    rows: list[asyncpg.Record] = await connection.fetch(
        """
        SELECT * FROM memory_facts
        WHERE validity = 'active' AND predicate = $3 AND qualifier = $4 AND scope = $5
          AND coalesce(entity_id::text, lower(subject)) = coalesce($1::uuid::text, lower($2))
        ORDER BY id FOR UPDATE
        """,
        fact.entity_id,
        fact.subject,
        fact.predicate,
        fact.qualifier,
        fact.scope,
    )
    return rows


def _same_source(row: asyncpg.Record, source: ItemSource) -> bool:
    if source.is_owner or row["trust"] == "owner":
        return source.is_owner and row["trust"] == "owner"
    return bool(row["sender"] == source.sender)


def _is_newer(row: asyncpg.Record, fact: NewFact, source: ItemSource) -> bool:
    """Return whether the known fact is true from a later time than the new one."""
    known, new = row["valid_from"] or row["observed_at"], fact.valid_from or source.observed_at
    return bool(known > new)


async def _store_historic(
    connection: Connection, source: ItemSource, fact: NewFact, newer: asyncpg.Record
) -> StoredFact:
    end = newer["valid_from"] or newer["observed_at"]
    fact_id = await _insert(connection, source, fact, "superseded", None, fact.valid_to or end)
    await link(connection, newer["id"], fact_id, Relation.SUPERSEDES)
    await log_event(connection, "stored as history", "fact", fact_id, source)
    return StoredFact(fact_id, "historic", superseded=None)


async def _store_active(
    connection: Connection,
    source: ItemSource,
    fact: NewFact,
    rivals: Sequence[asyncpg.Record],
    own: Sequence[asyncpg.Record],
) -> StoredFact:
    begin = fact.valid_from or source.observed_at
    for row in own:
        await connection.execute(
            """
            UPDATE memory_facts SET validity = 'superseded', valid_to = coalesce(valid_to, $2)
            WHERE id = $1
            """,
            row["id"],
            begin,
        )
    previous = own[-1]["id"] if own else None
    fact_id = await _insert(connection, source, fact, "active", previous, fact.valid_to)
    for row in own:
        await link(connection, fact_id, row["id"], Relation.SUPERSEDES)
    others = [row for row in rivals if not _same_source(row, source)]
    differing = [r["id"] for r in others if normalized(r["content"]) != normalized(fact.content)]
    for row in others:
        agrees = row["id"] not in differing
        await link(
            connection, fact_id, row["id"], Relation.SUPPORTS if agrees else Relation.CONTRADICTS
        )
    if fact.source_episode_id is not None:
        await link(connection, fact_id, fact.source_episode_id, Relation.DERIVED_FROM)
    status = "superseded" if own else "contradicts" if differing else "stored"
    await log_event(connection, status, "fact", fact_id, source)
    return StoredFact(fact_id, status, previous, tuple(differing))


async def _insert(
    connection: Connection,
    source: ItemSource,
    fact: NewFact,
    validity: str,
    supersedes: UUID | None,
    valid_to: datetime | None,
) -> UUID:
    fact_id = uuid7()
    await connection.execute(
        f"""
        INSERT INTO memory_facts
            (id, entity_id, object_entity_id, subject, predicate, qualifier, scope, content,
             content_hash, traits, importance, confidence, permanence, validity, supersedes_id,
             source_episode_id, valid_from, valid_to, last_confirmed_at, tags, metadata,
             {SOURCE_COLUMNS})
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19,
                $20, $21, $22, $23, $24, $25, $26, $27)
        """,
        fact_id,
        fact.entity_id,
        fact.object_entity_id,
        fact.subject,
        fact.predicate,
        fact.qualifier,
        fact.scope,
        fact.content,
        fact_hash(fact.subject, fact.predicate, fact.content),
        int(traits_of(fact.content)),
        fact.importance,
        fact.confidence,
        str(fact.permanence),
        validity,
        supersedes,
        fact.source_episode_id,
        fact.valid_from or source.observed_at,
        valid_to,
        source.observed_at,
        sorted(set(fact.tags)),
        dict(fact.metadata),
        *source.columns(),
    )
    return fact_id


async def get_fact(connection: Connection, fact_id: UUID) -> asyncpg.Record:
    row = await connection.fetchrow("SELECT * FROM memory_facts WHERE id = $1", fact_id)
    if row is None:
        raise NotFound(f"there is no fact {fact_id}", hint="memory_search finds facts")
    return row


async def confirm_fact(connection: Connection, source: ItemSource, fact_id: UUID) -> None:
    """Restart the decay of a fact. Only its own source, or the owner, may do so."""
    await connection.execute(
        """
        UPDATE memory_facts SET last_confirmed_at = greatest(last_confirmed_at, $2)
        WHERE id = $1 AND validity = 'active' AND ($3 OR sender = $4)
        """,
        fact_id,
        source.observed_at,
        source.is_owner,
        source.sender,
    )
    await log_event(connection, "confirmed", "fact", fact_id, source)


async def retract_fact(connection: Connection, source: ItemSource, fact_id: UUID, why: str) -> None:
    await connection.execute(
        """
        UPDATE memory_facts SET validity = 'retracted', valid_to = coalesce(valid_to, $2)
        WHERE id = $1 AND validity = 'active'
        """,
        fact_id,
        source.observed_at,
    )
    await log_event(connection, "retracted", "fact", fact_id, source, {"why": why})


async def rivals_of(connection: Connection, row: asyncpg.Record) -> list[asyncpg.Record]:
    """Return the other active facts about the same entity, predicate and qualifier."""
    rows: list[asyncpg.Record] = await connection.fetch(
        """
        SELECT * FROM memory_facts
        WHERE validity = 'active' AND id <> $1 AND predicate = $4 AND qualifier = $5 AND scope = $6
          AND coalesce(entity_id::text, lower(subject)) = coalesce($2::uuid::text, lower($3))
        """,
        row["id"],
        row["entity_id"],
        row["subject"],
        row["predicate"],
        row["qualifier"],
        row["scope"],
    )
    return rows


async def history_of(connection: Connection, row: asyncpg.Record) -> list[asyncpg.Record]:
    """Return every fact about the same entity, predicate and qualifier, newest first."""
    rows: list[asyncpg.Record] = await connection.fetch(
        """
        SELECT * FROM memory_facts
        WHERE predicate = $3 AND qualifier = $4 AND scope = $5
          AND coalesce(entity_id::text, lower(subject)) = coalesce($1::uuid::text, lower($2))
        ORDER BY valid_from DESC, id DESC LIMIT 50
        """,
        row["entity_id"],
        row["subject"],
        row["predicate"],
        row["qualifier"],
        row["scope"],
    )
    return rows


async def facts_of_entity(
    connection: Connection, entity_id: UUID, limit: int = 50
) -> list[asyncpg.Record]:
    rows: list[asyncpg.Record] = await connection.fetch(
        """
        SELECT * FROM memory_facts WHERE entity_id = $1 AND validity = 'active'
        ORDER BY importance DESC, predicate, id LIMIT $2
        """,
        entity_id,
        limit,
    )
    return rows


async def expire_faded(connection: Connection, now: datetime) -> int:
    """Mark facts as expired whose confidence has decayed, or whose time is over."""
    status = await connection.execute(
        f"""
        UPDATE memory_facts SET validity = 'expired', valid_to = coalesce(valid_to, $1)
        WHERE validity = 'active'
          AND (valid_to <= $1 OR {effective_confidence_sql("$1::timestamptz")} < {EXPIRED})
        """,
        now,
    )
    return int(status.split()[-1])
