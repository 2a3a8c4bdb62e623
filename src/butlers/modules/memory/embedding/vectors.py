"""Vectors in the database: pgvector's type where the extension is installed, arrays of reals otherwise.

Items are embedded when they are first searched, not when they are written: a message costs no model, and a
fleet that is not asked anything never loads it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

from butlers.db.database import Connection, Database
from butlers.modules.memory.embedding.embedder import Embedder
from butlers.modules.memory.items import ItemKind

if TYPE_CHECKING:
    from butlers.modules.memory.embedding.encoder import Array

PGVECTOR = "vector"
BATCH = 64
EMBEDDED_TEXT = {
    ItemKind.EPISODE: "speaker || ': ' || content",
    ItemKind.FACT: "subject || ' ' || replace(predicate, '_', ' ') || ': ' || content",
    ItemKind.RULE: "content",
}


class VectorStore:
    """Vectors of one butler's items, for one model."""

    def __init__(self, embedder: Embedder) -> None:
        self.embedder = embedder
        self._storage: str | None = None
        self._rows: dict[ItemKind, dict[UUID, Array]] = {}  # only without pgvector

    @property
    def available(self) -> bool:
        return self.embedder.available

    async def prepare(self, database: Database, limit: int) -> int:
        """Embed items that have no vector of this model yet. Return how many are still without one."""
        async with database.transaction() as connection:
            await self._adopt_model(connection)
        left = 0
        for kind in ItemKind:
            left += await self._embed_pending(database, kind, limit)
        return left

    async def _adopt_model(self, connection: Connection) -> None:
        """Drop the vectors of another model."""
        row = await connection.fetchrow("SELECT storage, model FROM memory_vectors")
        assert row is not None
        self._storage = row["storage"]
        if row["model"] == self.embedder.model:
            return
        for kind in ItemKind:
            await connection.execute(
                f"UPDATE {kind.table} SET embedding = NULL, embedded_by = NULL WHERE embedded_by <> $1",
                self.embedder.model,
            )
        await connection.execute("UPDATE memory_vectors SET model = $1", self.embedder.model)

    async def _embed_pending(self, database: Database, kind: ItemKind, limit: int) -> int:
        done = 0
        while done < limit:
            async with database.transaction(readonly=True) as connection:
                rows = await connection.fetch(
                    f"""
                    SELECT id, {EMBEDDED_TEXT[kind]} AS text FROM {kind.table}
                    WHERE embedded_by IS NULL ORDER BY id DESC LIMIT {BATCH}
                    """
                )
            if not rows:
                return 0
            vectors = await self.embedder.embed([row["text"] for row in rows])
            async with database.transaction() as connection:
                await self._store(connection, kind, [row["id"] for row in rows], vectors)
            done += len(rows)
        async with database.transaction(readonly=True) as connection:
            left: int = await connection.fetchval(
                f"SELECT count(*) FROM {kind.table} WHERE embedded_by IS NULL"
            )
        return left

    async def _store(
        self, connection: Connection, kind: ItemKind, ids: Sequence[UUID], vectors: Array
    ) -> None:
        await connection.executemany(
            f"UPDATE {kind.table} SET embedding = {self.parameter('$2')}, embedded_by = $3 WHERE id = $1",
            [
                (item_id, self.encode(vector), self.embedder.model)
                for item_id, vector in zip(ids, vectors, strict=True)
            ],
        )

    @property
    def in_database(self) -> bool:
        """Return whether the database itself compares vectors."""
        return self._storage == PGVECTOR

    def parameter(self, name: str) -> str:
        return f"{name}::text::vector" if self.in_database else f"{name}::real[]"

    def encode(self, vector: Array) -> Any:
        values = vector.tolist()
        return (
            "[" + ",".join(f"{value:.7g}" for value in values) + "]" if self.in_database else values
        )

    # -- exact comparison in numpy, where the database has no vectors ---------------------------------

    async def similarities(
        self, connection: Connection, kind: ItemKind, query: Array, ids: Sequence[UUID]
    ) -> Mapping[UUID, float]:
        """Return the cosine of each item with the query, computed here."""
        import numpy as np

        known = self._rows.setdefault(kind, {})
        wanted = list(ids)
        missing = [item_id for item_id in wanted if item_id not in known]
        rows = await connection.fetch(
            f"SELECT id, embedding FROM {kind.table} WHERE id = ANY($1::uuid[]) AND embedded_by = $2",
            missing,
            self.embedder.model,
        )
        known |= {row["id"]: np.asarray(row["embedding"], np.float32) for row in rows}
        found = [item_id for item_id in wanted if item_id in known]
        if not found:
            return {}
        scores = np.stack([known[item_id] for item_id in found]) @ query
        return dict(zip(found, map(float, scores), strict=True))

    def forget(self, ids: Sequence[UUID]) -> None:
        """Drop cached vectors of deleted items."""
        for rows in self._rows.values():
            for item_id in ids:
                rows.pop(item_id, None)
