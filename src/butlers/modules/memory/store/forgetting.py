"""Forgetting: delete items with everything derived from them, and keep only hashes of what is gone.

A forgotten fact takes its source episodes with it, because consolidation would derive it again; a forgotten
episode takes the facts that were derived from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from butlers.db.database import Connection
from butlers.domain.errors import InvalidArguments
from butlers.modules.memory.items import ItemKind, ItemSource, content_hash
from butlers.modules.memory.store.entities import resolve_merged
from butlers.modules.memory.store.events import bury_hashes, log_event
from butlers.sessions.session_log import erase_texts

MAX_ROUNDS = 20  # of following derivations; each round finds items derived from the last


@dataclass(frozen=True, slots=True)
class ForgetRequest:
    """A selection of items to forget: those that match every given field."""

    ids: tuple[UUID, ...] = ()
    entity_id: UUID | None = None
    request_id: UUID | None = None
    sender: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    hashes: tuple[str, ...] = ()  # of contents that another butler has forgotten

    def check(self) -> None:
        if self == ForgetRequest():
            raise InvalidArguments(
                "nothing is named to forget", hint="give ids, entity_id, source, sender or a time"
            )


@dataclass(frozen=True, slots=True)
class Forgotten:
    counts: dict[str, int]
    ids: tuple[UUID, ...]
    hashes: tuple[str, ...]
    requests: tuple[UUID, ...]

    def shown(self) -> dict[str, Any]:
        return {"forgotten": {kind: count for kind, count in self.counts.items() if count}}


async def forget(connection: Connection, source: ItemSource, what: ForgetRequest) -> Forgotten:
    """Delete what matches, in the caller's transaction."""
    what.check()
    entity = await resolve_merged(connection, what.entity_id) if what.entity_id else None
    chosen = {kind: await _matching(connection, kind, what, entity) for kind in ItemKind}
    await _add_derived(connection, chosen)
    hashes, requests, sessions = await _traces(connection, chosen)
    counts = await _delete(connection, chosen)
    counts["entities"] = await _delete_entity(connection, entity) if entity else 0
    if what.request_id:
        requests.add(what.request_id)
    keys = {content_hash(str(request)) for request in requests}
    await bury_hashes(connection, hashes | keys, "forgotten")
    await erase_texts(connection, sorted(sessions))
    await log_event(connection, "forgotten", "memory", None, source, counts)
    ids = tuple(item for items in chosen.values() for item in items)
    return Forgotten(counts, ids, tuple(sorted(hashes)), tuple(sorted(requests)))


async def _matching(
    connection: Connection, kind: ItemKind, what: ForgetRequest, entity: UUID | None
) -> set[UUID]:
    about = {
        ItemKind.FACT: "entity_id = $2 OR object_entity_id = $2",
        ItemKind.EPISODE: """EXISTS (SELECT 1 FROM memory_entities AS named
            WHERE (named.id = $2 OR named.merged_into = $2) AND (NOT named.is_owner) AND EXISTS (
                SELECT 1 FROM unnest(named.aliases || named.canonical_name) AS name
                WHERE lower(name) = lower(speaker)
                   OR search_vector @@ phraseto_tsquery('pg_catalog.english', name)))""",
        ItemKind.RULE: """EXISTS (SELECT 1 FROM memory_entities AS named
            WHERE (named.id = $2 OR named.merged_into = $2) AND NOT named.is_owner
              AND search_vector @@ phraseto_tsquery('pg_catalog.english', named.canonical_name))""",
    }
    rows = await connection.fetch(
        f"""
        SELECT id FROM {kind.table}
        WHERE (cardinality($1::uuid[]) = 0 OR id = ANY($1))
          AND ($2::uuid IS NULL OR {about[kind]})
          AND ($3::uuid IS NULL OR request_id = $3)
          AND ($4::text IS NULL OR sender = $4)
          AND ($5::timestamptz IS NULL OR observed_at >= $5)
          AND ($6::timestamptz IS NULL OR observed_at < $6)
          AND (cardinality($7::text[]) = 0 OR content_hash = ANY($7))
        """,
        list(what.ids),
        entity,
        what.request_id,
        what.sender,
        what.since,
        what.until,
        list(what.hashes),
    )
    return {row["id"] for row in rows}


async def _add_derived(connection: Connection, chosen: dict[ItemKind, set[UUID]]) -> None:
    """Add sources and derivations of the chosen items, and copies of their texts."""
    for _ in range(MAX_ROUNDS):
        before = sum(map(len, chosen.values()))
        await _add_copies(connection, chosen)
        await _add_sources(connection, chosen)
        if sum(map(len, chosen.values())) == before:
            return


async def _add_copies(connection: Connection, chosen: dict[ItemKind, set[UUID]]) -> None:
    """Add items with the same text as a chosen one and the same subject or kind."""
    chosen[ItemKind.FACT] |= _ids(
        await connection.fetch(
            """
            SELECT other.id FROM memory_facts AS fact JOIN memory_facts AS other
              ON other.content_hash = fact.content_hash AND other.predicate = fact.predicate
             AND other.entity_id IS NOT DISTINCT FROM fact.entity_id
            WHERE fact.id = ANY($1::uuid[])
            """,
            list(chosen[ItemKind.FACT]),
        )
    )
    for kind in (ItemKind.EPISODE, ItemKind.RULE):
        chosen[kind] |= _ids(
            await connection.fetch(
                f"""
                SELECT other.id FROM {kind.table} AS item
                JOIN {kind.table} AS other USING (content_hash) WHERE item.id = ANY($1::uuid[])
                """,
                list(chosen[kind]),
            )
        )


async def _add_sources(connection: Connection, chosen: dict[ItemKind, set[UUID]]) -> None:
    """Add the episodes that chosen items come from, and the items derived from chosen episodes."""
    facts, rules = chosen[ItemKind.FACT], chosen[ItemKind.RULE]
    chosen[ItemKind.EPISODE] |= _ids(
        await connection.fetch(
            """
            SELECT source_episode_id AS id FROM memory_facts
            WHERE id = ANY($1::uuid[]) AND source_episode_id IS NOT NULL
            UNION SELECT source_episode_id FROM memory_rules
            WHERE id = ANY($2::uuid[]) AND source_episode_id IS NOT NULL
            UNION SELECT episode.id FROM memory_links JOIN memory_episodes AS episode ON episode.id = to_id
            WHERE relation = 'derived_from' AND from_id = ANY($1::uuid[] || $2::uuid[])
            """,
            list(facts),
            list(rules),
        )
    )
    episodes = list(chosen[ItemKind.EPISODE])
    for kind in (ItemKind.FACT, ItemKind.RULE):
        chosen[kind] |= _ids(
            await connection.fetch(
                f"""
                SELECT id FROM {kind.table} WHERE source_episode_id = ANY($1::uuid[])
                UNION SELECT item.id FROM memory_links JOIN {kind.table} AS item ON item.id = from_id
                WHERE relation = 'derived_from' AND to_id = ANY($1::uuid[])
                """,
                episodes,
            )
        )


async def _traces(
    connection: Connection, chosen: dict[ItemKind, set[UUID]]
) -> tuple[set[str], set[UUID], set[UUID]]:
    """Return hashes of the texts, requests they came from, and consolidation sessions that read them."""
    hashes: set[str] = set()
    requests: set[UUID] = set()
    for kind, items in chosen.items():
        rows = await connection.fetch(
            f"SELECT content_hash, request_id FROM {kind.table} WHERE id = ANY($1::uuid[])",
            list(items),
        )
        hashes |= {row["content_hash"] for row in rows}
        requests |= {row["request_id"] for row in rows if row["request_id"]}
    rows = await connection.fetch(
        """
        SELECT DISTINCT consolidated_by FROM memory_episodes
        WHERE id = ANY($1::uuid[]) AND consolidated_by IS NOT NULL
        """,
        list(chosen[ItemKind.EPISODE]),
    )
    return hashes, requests, {row["consolidated_by"] for row in rows}


async def _delete(connection: Connection, chosen: dict[ItemKind, set[UUID]]) -> dict[str, int]:
    counts = {}
    everything: Sequence[UUID] = [item for items in chosen.values() for item in items]
    await connection.execute(
        "DELETE FROM memory_links WHERE from_id = ANY($1::uuid[]) OR to_id = ANY($1::uuid[])",
        everything,
    )
    await connection.execute(
        "DELETE FROM memory_events WHERE item_id = ANY($1::uuid[])", everything
    )
    for kind, items in chosen.items():
        status = await connection.execute(
            f"DELETE FROM {kind.table} WHERE id = ANY($1::uuid[])", list(items)
        )
        counts[f"{kind}s"] = int(status.split()[-1])
    return counts


async def _delete_entity(connection: Connection, entity: UUID) -> int:
    """Delete an entity and those merged into it. The owner stays."""
    status = await connection.execute(
        "DELETE FROM memory_entities WHERE (id = $1 OR merged_into = $1) AND NOT is_owner", entity
    )
    return int(status.split()[-1])


def _ids(rows: Sequence[Any]) -> set[UUID]:
    return {row["id"] for row in rows}
