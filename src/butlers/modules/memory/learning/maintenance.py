"""Maintenance: delete expired episodes, expire faded facts, merge facts that say the same twice."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import combinations, groupby
from typing import Any

import asyncpg

from butlers.db.database import Connection, Database
from butlers.domain.provenance import Provenance, Trust
from butlers.modules.memory.embedding.vectors import VectorStore
from butlers.modules.memory.items import ItemSource, Relation, normalized
from butlers.modules.memory.store.entities import similarity
from butlers.modules.memory.store.episodes import delete_expired
from butlers.modules.memory.store.events import delete_old_events, link, log_event
from butlers.modules.memory.store.facts import expire_faded

SAME_PREDICATE, ANY_PREDICATE = 0.90, 0.97  # cosine from which two facts say the same
SAME_WORDS = 0.8  # trigram similarity, where there are no vectors
EVENTS_KEPT = timedelta(days=365)
MAX_FACTS = 20_000


async def clean_up(
    database: Database, vectors: VectorStore, butler: str, now: datetime, keep_episodes: int
) -> dict[str, int]:
    """Run every maintenance step, each in its own transaction. Return what each did."""
    async with database.transaction() as connection:
        episodes = await delete_expired(connection, now, keep_episodes)
        faded = await expire_faded(connection, now)
        await delete_old_events(connection, now - EVENTS_KEPT)
    merged = await merge_duplicates(database, vectors, butler, now)
    return {
        "episodes_deleted": sum(episodes.values()),
        "facts_expired": faded,
        "facts_merged": merged,
    }


async def merge_duplicates(
    database: Database, vectors: VectorStore, butler: str, now: datetime
) -> int:
    """Supersede facts of one entity and source that say what a newer one says."""
    async with database.transaction(readonly=True) as connection:
        rows = await _candidates(connection)
    if not rows:
        return 0
    if vectors.available:
        await vectors.prepare(database, MAX_FACTS)
        async with database.transaction(readonly=True) as connection:
            rows = await _candidates(connection)
    pairs = list(_duplicates(rows))
    source = ItemSource(butler, Provenance(Trust.OWNER, "maintenance"), now)
    async with database.transaction() as connection:
        for older, newer in pairs:
            await _merge(connection, source, older, newer)
    return len(pairs)


async def _candidates(connection: Connection) -> list[asyncpg.Record]:
    """Return the active facts of entities that have several from one source."""
    rows: list[asyncpg.Record] = await connection.fetch(
        """
        SELECT *, embedding::real[] AS vector FROM (
            SELECT fact.*, count(*) OVER (PARTITION BY entity_id, trust, sender) AS together
            FROM memory_facts AS fact WHERE validity = 'active' AND entity_id IS NOT NULL
        ) AS facts
        WHERE together > 1 ORDER BY entity_id, trust, sender, observed_at, id LIMIT $1
        """,
        MAX_FACTS,
    )
    return rows


def _duplicates(rows: list[asyncpg.Record]) -> Iterator[tuple[asyncpg.Record, asyncpg.Record]]:
    """Yield pairs (older, newer) that say the same, each older fact once."""
    for _, group in groupby(rows, key=lambda row: (row["entity_id"], row["trust"], row["sender"])):
        gone: set[Any] = set()
        for older, newer in combinations(list(group), 2):
            if older["id"] not in gone and newer["id"] not in gone and _say_the_same(older, newer):
                gone.add(older["id"])
                yield older, newer


def _say_the_same(left: asyncpg.Record, right: asyncpg.Record) -> bool:
    same_predicate = left["predicate"] == right["predicate"]
    if left["scope"] != right["scope"]:
        return False
    if normalized(left["content"]) == normalized(right["content"]):
        return same_predicate or _related(left["predicate"], right["predicate"])
    # Values of one predicate with different qualifiers are different things, however similar.
    if same_predicate and left["qualifier"] != right["qualifier"] and not _contained(left, right):
        return False
    if left["vector"] is None or right["vector"] is None:
        words = similarity(normalized(left["content"]), normalized(right["content"]))
        return same_predicate and words >= SAME_WORDS
    cosine = sum(a * b for a, b in zip(left["vector"], right["vector"], strict=True))
    return bool(cosine >= (SAME_PREDICATE if same_predicate else ANY_PREDICATE))


def _related(left: str, right: str) -> bool:
    """Return whether two predicates share a word: lives_in and lives_at."""
    return not set(left.split("_")).isdisjoint(right.split("_"))


def _contained(left: asyncpg.Record, right: asyncpg.Record) -> bool:
    one, other = set(normalized(left["content"]).split()), set(normalized(right["content"]).split())
    return one <= other or other <= one


async def _merge(
    connection: Connection, source: ItemSource, older: asyncpg.Record, newer: asyncpg.Record
) -> None:
    await connection.execute(
        "UPDATE memory_facts SET validity = 'superseded', valid_to = coalesce(valid_to, $2) WHERE id = $1",
        older["id"],
        source.observed_at,
    )
    await connection.execute(
        """
        UPDATE memory_facts SET importance = greatest(importance, $2),
            last_confirmed_at = greatest(last_confirmed_at, $3), valid_from = least(valid_from, $4)
        WHERE id = $1
        """,
        newer["id"],
        older["importance"],
        older["last_confirmed_at"],
        older["valid_from"],
    )
    await link(connection, newer["id"], older["id"], Relation.SUPERSEDES)
    await log_event(connection, "merged", "fact", newer["id"], source, {"merged": str(older["id"])})
