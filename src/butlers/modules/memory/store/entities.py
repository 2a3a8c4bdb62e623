"""People, organizations and places that facts are about: SQL of memory_entities, and name resolution."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

import asyncpg

from butlers.db.database import Connection
from butlers.domain.clock import uuid7
from butlers.domain.errors import InvalidArguments, NotFound
from butlers.modules.memory.items import OWNER_NAME, SOURCE_COLUMNS, ItemSource, normalized

EXACT, ALIAS, PREFIX, FUZZY = 100, 80, 50, 20
CONTEXT_BOOST = 20
SIMILAR = 0.3  # trigram similarity from which a name is a fuzzy match
MAX_NAMES = 5_000  # names that are compared for a fuzzy match


async def create_entity(
    connection: Connection,
    source: ItemSource,
    name: str,
    entity_type: str = "person",
    aliases: Iterable[str] = (),
    *,
    is_owner: bool = False,
    author_of: str | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> UUID:
    entity_id = uuid7()
    await connection.execute(
        f"""
        INSERT INTO memory_entities
            (id, canonical_name, entity_type, aliases, is_owner, author_of, metadata, {SOURCE_COLUMNS})
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
        """,
        entity_id,
        name.strip(),
        entity_type,
        sorted(set(aliases)),
        is_owner,
        author_of,
        dict(metadata or {}),
        *source.columns(),
    )
    return entity_id


async def owner_entity(connection: Connection, source: ItemSource) -> UUID:
    """Return the entity of the owner; it is created when first needed."""
    await connection.execute(
        f"""
        INSERT INTO memory_entities
            (id, canonical_name, is_owner, {SOURCE_COLUMNS})
        SELECT $1, $2, true, $3, NULL::uuid, NULL::uuid, $2, 'owner', $4
        WHERE NOT EXISTS (SELECT 1 FROM memory_entities WHERE is_owner)
        ON CONFLICT DO NOTHING
        """,
        uuid7(),
        OWNER_NAME,
        source.butler,
        source.observed_at,
    )
    found: UUID = await connection.fetchval("SELECT id FROM memory_entities WHERE is_owner")
    return found


async def author_entity(connection: Connection, source: ItemSource) -> UUID:
    """Return the entity of the message's author: the owner, or the outside sender."""
    if source.is_owner:
        return await owner_entity(connection, source)
    await connection.execute(
        f"""
        INSERT INTO memory_entities (id, canonical_name, author_of, {SOURCE_COLUMNS})
        VALUES ($1, $2, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (author_of) DO NOTHING
        """,
        uuid7(),
        source.sender,
        *source.columns(),
    )
    found: UUID = await connection.fetchval(
        "SELECT id FROM memory_entities WHERE author_of = $1", source.sender
    )
    return await resolve_merged(connection, found)


async def resolve_merged(connection: Connection, entity_id: UUID) -> UUID:
    """Follow merges to the entity that remains. Raises NotFound."""
    found = await connection.fetchval(
        """
        WITH RECURSIVE chain AS (
            SELECT id, merged_into, 1 AS depth FROM memory_entities WHERE id = $1
            UNION ALL
            SELECT next.id, next.merged_into, depth + 1 FROM memory_entities AS next
            JOIN chain ON next.id = chain.merged_into WHERE depth < 20
        )
        SELECT id FROM chain WHERE merged_into IS NULL
        """,
        entity_id,
    )
    if found is None:
        raise NotFound(f"there is no entity {entity_id}", hint="memory_entity_resolve finds them")
    remaining: UUID = found
    return remaining


async def get_entity(connection: Connection, entity_id: UUID) -> asyncpg.Record:
    row = await connection.fetchrow(
        "SELECT * FROM memory_entities WHERE id = $1", await resolve_merged(connection, entity_id)
    )
    assert row is not None
    return row


async def update_entity(
    connection: Connection,
    entity_id: UUID,
    name: str | None,
    entity_type: str | None,
    aliases: list[str] | None,
    metadata: Mapping[str, Any] | None,
) -> asyncpg.Record:
    row = await connection.fetchrow(
        """
        UPDATE memory_entities SET
            canonical_name = coalesce($2, canonical_name),
            entity_type = coalesce($3, entity_type),
            aliases = coalesce($4::text[], aliases),
            metadata = metadata || coalesce($5::jsonb, '{}'),
            updated_at = now()
        WHERE id = $1 RETURNING *
        """,
        await resolve_merged(connection, entity_id),
        name,
        entity_type,
        aliases,
        dict(metadata) if metadata is not None else None,
    )
    assert row is not None
    return row


async def merge_entities(connection: Connection, kept: UUID, gone: UUID) -> int:
    """Re-point the facts of one entity to another, keep its names as aliases, return the facts moved.

    The facts that would stand twice are superseded by the kept entity's.
    """
    kept, gone = await resolve_merged(connection, kept), await resolve_merged(connection, gone)
    if kept == gone:
        raise InvalidArguments("both ids are the same entity")
    moved_owner = await connection.fetchval(
        "SELECT is_owner FROM memory_entities WHERE id = $1", gone
    )
    if moved_owner:
        raise InvalidArguments("the owner cannot be merged away", hint="swap the two ids")
    await connection.execute(
        """
        UPDATE memory_facts AS fact SET validity = 'superseded', valid_to = coalesce(fact.valid_to, now())
        FROM memory_facts AS other
        WHERE fact.entity_id = $2 AND fact.validity = 'active' AND other.entity_id = $1
          AND other.validity = 'active' AND (other.predicate, other.qualifier, other.scope)
              = (fact.predicate, fact.qualifier, fact.scope)
          AND (other.trust = 'owner' AND fact.trust = 'owner' OR other.sender = fact.sender)
        """,
        kept,
        gone,
    )
    status = await connection.execute(
        "UPDATE memory_facts SET entity_id = $1 WHERE entity_id = $2", kept, gone
    )
    await connection.execute(
        "UPDATE memory_facts SET object_entity_id = $1 WHERE object_entity_id = $2", kept, gone
    )
    await connection.execute(
        """
        UPDATE memory_entities AS kept SET updated_at = now(), aliases = ARRAY(
            SELECT DISTINCT name FROM unnest(kept.aliases || gone.aliases || gone.canonical_name) AS name
            WHERE name <> kept.canonical_name ORDER BY name)
        FROM memory_entities AS gone WHERE kept.id = $1 AND gone.id = $2
        """,
        kept,
        gone,
    )
    await connection.execute(
        "UPDATE memory_entities SET merged_into = $1, updated_at = now() WHERE id = $2", kept, gone
    )
    return int(status.split()[-1])


async def resolve_name(
    connection: Connection, name: str, context: str = "", limit: int = 5
) -> list[tuple[asyncpg.Record, float, str]]:
    """Return entities that the name may mean, best first, each with its score and the reason."""
    wanted = normalized(name)
    words = set(normalized(context).split())
    rows = await connection.fetch(
        "SELECT * FROM memory_entities WHERE merged_into IS NULL ORDER BY updated_at DESC LIMIT $1",
        MAX_NAMES,
    )
    found = []
    for row in rows:
        score, why = _name_score(wanted, row)
        if score:
            boost = CONTEXT_BOOST if words & _context_words(row, wanted) else 0
            found.append((row, score + boost, why))
    found.sort(key=lambda match: (-match[1], match[0]["canonical_name"]))
    return found[:limit]


def _name_score(wanted: str, row: asyncpg.Record) -> tuple[float, str]:
    name = normalized(row["canonical_name"])
    aliases = [normalized(alias) for alias in row["aliases"]]
    if wanted == name:
        return EXACT, "exact"
    if wanted in aliases:
        return ALIAS, "alias"
    if any(f"{known} ".startswith(f"{wanted} ") for known in (name, *aliases)):
        return PREFIX, "prefix"
    best = max(similarity(wanted, known) for known in (name, *aliases))
    return (FUZZY * best, "fuzzy") if best >= SIMILAR else (0, "")


def _context_words(row: asyncpg.Record, wanted: str) -> set[str]:
    texts = [
        row["canonical_name"],
        row["entity_type"],
        *row["aliases"],
        *map(str, row["metadata"].values()),
    ]
    return set(normalized(" ".join(texts)).split()) - set(wanted.split())


def similarity(left: str, right: str) -> float:
    """Return the share of common trigrams of two words or names, as pg_trgm counts them."""
    first, second = _trigrams(left), _trigrams(right)
    return len(first & second) / len(first | second) if first and second else 0.0


def _trigrams(text: str) -> set[str]:
    padded = [f"  {word} " for word in text.split()]
    return {word[start : start + 3] for word in padded for start in range(len(word) - 2)}


async def known_names(connection: Connection, phrases: list[str]) -> list[asyncpg.Record]:
    """Return the entities whose name or alias is one of these phrases (lower case)."""
    rows: list[asyncpg.Record] = await connection.fetch(
        """
        SELECT id, canonical_name, aliases, is_owner FROM memory_entities
        WHERE merged_into IS NULL
          AND (lower(canonical_name) = ANY($1::text[])
               OR EXISTS (SELECT 1 FROM unnest(aliases) AS alias WHERE lower(alias) = ANY($1::text[])))
        """,
        phrases,
    )
    return rows
