"""SQL of memory_rules: how the owner wants things done, and how well each rule has worked."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

import asyncpg

from butlers.db.database import Connection
from butlers.domain.clock import uuid7
from butlers.domain.errors import NotFound
from butlers.modules.memory.items import SOURCE_COLUMNS, ItemSource, content_hash
from butlers.modules.memory.store.events import log_event

HARM_WEIGHT = 4
ESTABLISHED, PROVEN = (5, 0.6), (15, 0.8)  # successes and effectiveness
PROVEN_AGE = timedelta(days=30)
ANTI_PATTERN = (3, 0.3)  # at least so many harmful uses, and effectiveness below


@dataclass(frozen=True, slots=True)
class NewRule:
    content: str
    scope: str = "global"
    confidence: float = 0.5
    source_episode_id: UUID | None = None


async def store_rule(connection: Connection, source: ItemSource, rule: NewRule) -> tuple[UUID, str]:
    """Store a rule; the same rule again confirms the known one. Return its id and what happened."""
    digest = content_hash(rule.content)
    await connection.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", digest)
    known: UUID | None = await connection.fetchval(
        """
        UPDATE memory_rules SET last_confirmed_at = greatest(last_confirmed_at, $3)
        WHERE content_hash = $1 AND scope = $2 AND validity = 'active' RETURNING id
        """,
        digest,
        rule.scope,
        source.observed_at,
    )
    if known is not None:
        await log_event(connection, "confirmed", "rule", known, source)
        return known, "confirmed"
    rule_id = uuid7()
    await connection.execute(
        f"""
        INSERT INTO memory_rules
            (id, scope, content, content_hash, confidence, last_confirmed_at, source_episode_id,
             {SOURCE_COLUMNS})
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
        """,
        rule_id,
        rule.scope,
        rule.content,
        digest,
        rule.confidence,
        source.observed_at,
        rule.source_episode_id,
        *source.columns(),
    )
    await log_event(connection, "stored", "rule", rule_id, source)
    return rule_id, "stored"


async def get_rule(connection: Connection, rule_id: UUID) -> asyncpg.Record:
    row = await connection.fetchrow("SELECT * FROM memory_rules WHERE id = $1", rule_id)
    if row is None:
        raise NotFound(f"there is no rule {rule_id}", hint="memory_search finds rules")
    return row


async def count_use(
    connection: Connection, source: ItemSource, rule_id: UUID, *, helpful: bool
) -> asyncpg.Record:
    """Count one use of a rule and derive its effectiveness and maturity."""
    row = await connection.fetchrow(
        """
        UPDATE memory_rules SET applied_count = applied_count + 1,
            success_count = success_count + $2::bool::int, harmful_count = harmful_count + $3::bool::int,
            last_confirmed_at = CASE WHEN $2::bool THEN greatest(last_confirmed_at, $4)
                                ELSE last_confirmed_at END
        WHERE id = $1 AND validity = 'active' RETURNING *
        """,
        rule_id,
        helpful,
        not helpful,
        source.observed_at,
    )
    if row is None:
        raise NotFound(f"there is no rule {rule_id}", hint="memory_search finds rules")
    score = effectiveness(row["success_count"], row["harmful_count"])
    age = source.observed_at - row["observed_at"]
    stage = maturity(row["maturity"], row["success_count"], row["harmful_count"], age)
    updated = await connection.fetchrow(
        "UPDATE memory_rules SET effectiveness = $2, maturity = $3 WHERE id = $1 RETURNING *",
        rule_id,
        score,
        stage,
    )
    assert updated is not None
    await log_event(connection, "helpful" if helpful else "harmful", "rule", rule_id, source)
    return updated


def effectiveness(successes: int, harmful: int) -> float:
    """Return the share of successes, where harm counts four times."""
    weighed = successes + HARM_WEIGHT * harmful
    return successes / weighed if weighed else 0.0


def maturity(current: str, successes: int, harmful: int, age: timedelta) -> str:
    score = effectiveness(successes, harmful)
    if harmful >= ANTI_PATTERN[0] and score < ANTI_PATTERN[1]:
        return "anti_pattern"
    if successes >= PROVEN[0] and score >= PROVEN[1] and age >= PROVEN_AGE:
        return "proven"
    if successes >= ESTABLISHED[0] and score >= ESTABLISHED[1]:
        return "established"
    return "candidate" if current in ("candidate", "anti_pattern") or not successes else current


async def retract_rule(connection: Connection, source: ItemSource, rule_id: UUID) -> None:
    await connection.execute(
        "UPDATE memory_rules SET validity = 'retracted' WHERE id = $1", rule_id
    )
    await log_event(connection, "retracted", "rule", rule_id, source)


async def active_rules(
    connection: Connection, now: datetime, limit: int, scopes: tuple[str, ...]
) -> list[asyncpg.Record]:
    """Return the owner's rules, the best proven first. Rules that did harm are among them, as warnings."""
    rows: list[asyncpg.Record] = await connection.fetch(
        """
        SELECT * FROM memory_rules
        WHERE validity = 'active' AND trust = 'owner' AND observed_at <= $1 AND scope = ANY($3::text[])
        ORDER BY CASE maturity WHEN 'proven' THEN 0 WHEN 'established' THEN 1 WHEN 'candidate' THEN 2
                 ELSE 3 END, id LIMIT $2
        """,
        now,
        limit,
        list(scopes),
    )
    return rows
