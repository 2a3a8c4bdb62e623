"""Links between items, the log of what happened to them, and tombstones of what was forgotten.

Events and tombstones never hold an item's text: they outlive it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from butlers.db.database import Connection
from butlers.modules.memory.items import ItemSource, Relation


async def link(connection: Connection, from_id: UUID, to_id: UUID, relation: Relation) -> None:
    await connection.execute(
        "INSERT INTO memory_links (from_id, to_id, relation) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
        from_id,
        to_id,
        str(relation),
    )


async def links_of(connection: Connection, item_id: UUID) -> list[dict[str, Any]]:
    rows = await connection.fetch(
        """
        SELECT relation, from_id, to_id FROM memory_links
        WHERE from_id = $1 OR to_id = $1 ORDER BY created_at, relation
        """,
        item_id,
    )
    return [
        {"relation": row["relation"], "from": str(row["from_id"]), "to": str(row["to_id"])}
        for row in rows
    ]


async def log_event(
    connection: Connection,
    kind: str,
    item_kind: str,
    item_id: UUID | None,
    source: ItemSource,
    detail: Mapping[str, Any] | None = None,
) -> None:
    await connection.execute(
        """
        INSERT INTO memory_events (kind, item_kind, item_id, session_id, request_id, detail, at)
        VALUES ($1, $2, $3, $4, $5, $6, $7)
        """,
        kind,
        item_kind,
        item_id,
        source.provenance.session_id,
        source.provenance.request_id,
        dict(detail or {}),
        source.observed_at,
    )


async def events_of(connection: Connection, item_id: UUID) -> list[dict[str, Any]]:
    rows = await connection.fetch(
        "SELECT kind, detail, session_id, request_id, at FROM memory_events WHERE item_id = $1 ORDER BY id",
        item_id,
    )
    return [
        {
            "what": row["kind"],
            "at": row["at"].isoformat(),
            "session_id": str(row["session_id"]) if row["session_id"] else None,
            "request_id": str(row["request_id"]) if row["request_id"] else None,
            **row["detail"],
        }
        for row in rows
    ]


async def bury_hashes(connection: Connection, hashes: Iterable[str], reason: str) -> None:
    """Keep the hashes of forgotten texts, so that an import does not bring them back."""
    await connection.executemany(
        "INSERT INTO memory_tombstones (hash, reason) VALUES ($1, $2) ON CONFLICT DO NOTHING",
        [(each, reason) for each in sorted(set(hashes))],
    )


async def is_buried(connection: Connection, *hashes: str) -> bool:
    return bool(
        await connection.fetchval(
            "SELECT EXISTS (SELECT 1 FROM memory_tombstones WHERE hash = ANY($1::text[]))",
            list(hashes),
        )
    )


async def lift_tombstone(connection: Connection, *hashes: str) -> None:
    """Remove tombstones of texts that the owner states anew."""
    await connection.execute(
        "DELETE FROM memory_tombstones WHERE hash = ANY($1::text[])", list(hashes)
    )


async def delete_old_events(connection: Connection, before: datetime) -> int:
    status = await connection.execute("DELETE FROM memory_events WHERE at < $1", before)
    return int(status.split()[-1])
