"""Counts of a butler's memory, with what should not be there: junk, duplicates, contradictions, unsourced."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from butlers.db.database import Connection
from butlers.modules.memory.items import FADING, effective_confidence_sql
from butlers.modules.memory.learning.worth import junk_reason


async def memory_counts(connection: Connection, now: datetime) -> dict[str, Any]:
    row = await connection.fetchrow(
        f"""
        SELECT
          (SELECT count(*) FROM memory_episodes) AS episodes,
          (SELECT count(*) FROM memory_episodes WHERE consolidation = 'pending') AS pending,
          (SELECT count(*) FROM memory_episodes WHERE consolidation = 'dead') AS dead,
          (SELECT count(*) FROM memory_facts WHERE validity = 'active') AS facts,
          (SELECT count(*) FROM memory_facts WHERE validity <> 'active') AS history,
          (SELECT count(*) FROM memory_facts WHERE validity = 'active'
             AND {effective_confidence_sql("$1::timestamptz")} < {FADING}) AS fading,
          (SELECT count(*) FROM memory_rules WHERE validity = 'active') AS rules,
          (SELECT count(*) FROM memory_entities WHERE merged_into IS NULL) AS entities,
          (SELECT count(*) FROM memory_tombstones) AS tombstones
        """,
        now,
    )
    assert row is not None
    return {**dict(row), "quality": await _quality(connection)}


async def _quality(connection: Connection) -> dict[str, int]:
    facts = await connection.fetch("SELECT content FROM memory_facts WHERE validity = 'active'")
    duplicates = await connection.fetchval(
        """
        SELECT coalesce(sum(copies - 1), 0)::bigint FROM (
            SELECT count(*) AS copies FROM memory_facts WHERE validity = 'active'
            GROUP BY coalesce(entity_id::text, lower(subject)), content_hash, predicate, trust,
                     CASE trust WHEN 'owner' THEN '' ELSE sender END
        ) AS texts
        """
    )
    contradictions = await connection.fetchval(
        """
        SELECT count(*) FROM memory_links AS link
        JOIN memory_facts AS one ON one.id = from_id AND one.validity = 'active'
        JOIN memory_facts AS other ON other.id = to_id AND other.validity = 'active'
        WHERE relation = 'contradicts'
        """
    )
    unsourced = await connection.fetchval(
        """
        SELECT count(*) FROM (
            SELECT sender, butler FROM memory_facts UNION ALL SELECT sender, butler FROM memory_rules
            UNION ALL SELECT sender, butler FROM memory_episodes
        ) AS items WHERE sender = '' OR butler = ''
        """
    )
    return {
        "junk": sum(1 for row in facts if junk_reason(row["content"])),
        "duplicates": int(duplicates),
        "contradictions": int(contradictions),
        "unsourced": int(unsourced),
    }
