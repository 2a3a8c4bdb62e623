"""Candidates of a search, read with SQL: by words, by meaning, and the turns around a found turn."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from typing import Any
from uuid import UUID

from butlers.db.database import Connection
from butlers.modules.memory.embedding.vectors import VectorStore
from butlers.modules.memory.items import ItemKind, effective_confidence_sql
from butlers.modules.memory.search.query import AnalyzedQuery

BY_WORDS, BY_MEANING = 200, 120
RARE = 3_000  # rows that the words which select candidates may match together
REACH = 4  # turns that are read on each side of a found turn
SAMPLE = 400  # items whose similarity gives the mean and the spread


@dataclass(slots=True)
class Candidate:
    """One item with the values that the fusion weighs."""

    id: UUID
    kind: ItemKind
    conversation: str
    turn: int
    name: str  # speaker or subject, in lower case
    traits: int
    length: int
    observed_at: datetime
    valid_to: datetime | None
    entity_id: UUID | None
    confidence: float
    matched: int  # bit per term of the query
    similarity: float | None


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean and standard deviation of the similarity of ordinary items with the query."""

    mean: float = 0.0
    deviation: float = 1.0

    def z(self, similarity: float | None) -> float:
        return 0.0 if similarity is None else (similarity - self.mean) / self.deviation


class _Arguments:
    """Numbered parameters of a statement."""

    def __init__(self) -> None:
        self.values: list[Any] = []

    def add(self, value: Any) -> str:
        self.values.append(value)
        return f"${len(self.values)}"


_COLUMNS = {
    ItemKind.EPISODE: """conversation, turn, lower(speaker) AS name, observed_at, expires_at AS valid_to,
        NULL::uuid AS entity_id, 1.0::float8 AS confidence""",
    ItemKind.FACT: """'' AS conversation, 0 AS turn, lower(subject) AS name,
        coalesce(valid_from, observed_at) AS observed_at, valid_to, entity_id,
        {confidence}::float8 AS confidence""",
    ItemKind.RULE: """'' AS conversation, 0 AS turn, '' AS name, observed_at, NULL::timestamptz AS valid_to,
        NULL::uuid AS entity_id, confidence::float8 AS confidence""",
}


class CandidateReader:
    """Reads the candidates of one query on one connection."""

    def __init__(self, connection: Connection, vectors: VectorStore, query: AnalyzedQuery) -> None:
        self._connection = connection
        self._vectors = vectors
        self._query = query
        self._dense_here = query.vector is not None and not vectors.in_database

    async def read(self, kind: ItemKind) -> tuple[dict[UUID, Candidate], Spread]:
        """Return the items of a kind that match by words or by meaning."""
        found: dict[UUID, Candidate] = {}
        if self._query.terms:
            found |= await self._by_words(kind)
        spread = Spread()
        if self._query.vector is not None:
            spread = await self._spread(kind)
            found = {**await self._by_meaning(kind), **found}
            await self._add_similarities(kind, found)
        return found, spread

    async def windows(self, ranges: Mapping[tuple[str, int], int]) -> dict[UUID, Candidate]:
        """Return the turns of each range: (conversation, first turn) → last turn."""
        arguments = _Arguments()
        keys = list(ranges)
        conversations = arguments.add([conversation for conversation, _ in keys])
        first, last = (
            arguments.add([turn for _, turn in keys]),
            arguments.add(list(ranges.values())),
        )
        sql = f"""
            SELECT {self._selected(ItemKind.EPISODE, arguments)}
            FROM unnest({conversations}::text[], {first}::int[], {last}::int[]) AS part(talk, low, high)
            JOIN memory_episodes ON conversation = talk AND turn BETWEEN low AND high
            WHERE {self._filters(ItemKind.EPISODE, arguments)}
            """
        found = await self._fetch(ItemKind.EPISODE, sql, arguments)
        await self._add_similarities(ItemKind.EPISODE, found)
        return found

    async def _by_words(self, kind: ItemKind) -> dict[UUID, Candidate]:
        arguments = _Arguments()
        chosen = " | ".join(term.quoted for term in self._selective_terms())
        weights = " + ".join(
            f"(search_vector @@ {arguments.add(term.quoted)}::text::tsquery)::int * {term.weight:.4f}"
            for term in self._query.terms
        )
        best = f"""
            SELECT id FROM {kind.table}
            WHERE search_vector @@ {arguments.add(chosen)}::text::tsquery
              AND {self._filters(kind, arguments)}
            ORDER BY {weights} DESC, id DESC LIMIT {BY_WORDS}
            """
        return await self._read_best(kind, best, arguments)

    async def _read_best(
        self, kind: ItemKind, best: str, arguments: _Arguments
    ) -> dict[UUID, Candidate]:
        """Read the items that a subquery has chosen, so that their values are computed for them alone."""
        sql = f"""
            SELECT {self._selected(kind, arguments)} FROM {kind.table} WHERE id = ANY(ARRAY({best}))
            """
        return await self._fetch(kind, sql, arguments)

    def _selective_terms(self) -> list[Any]:
        """Return the rarest terms: very common words alone would select half of a large table."""
        ordered = sorted(self._query.terms, key=operator.attrgetter("count"))
        chosen, rows = ordered[:1], ordered[0].count
        for term in ordered[1:]:
            rows += term.count
            if rows > RARE:
                break
            chosen.append(term)
        return chosen

    async def _by_meaning(self, kind: ItemKind) -> dict[UUID, Candidate]:
        if self._dense_here:
            return await self._by_meaning_here(kind)
        arguments = _Arguments()
        vector = self._vector(arguments)
        best = f"""
            SELECT id FROM {kind.table}
            WHERE embedding IS NOT NULL AND {self._filters(kind, arguments)}
            ORDER BY embedding <#> {vector} LIMIT {BY_MEANING}
            """
        return await self._read_best(kind, best, arguments)

    async def _by_meaning_here(self, kind: ItemKind) -> dict[UUID, Candidate]:
        arguments = _Arguments()
        condition = self._filters(kind, arguments)
        rows = await self._connection.fetch(
            f"SELECT id FROM {kind.table} WHERE embedding IS NOT NULL AND {condition}",
            *arguments.values,
        )
        assert self._query.vector is not None
        scores = await self._vectors.similarities(
            self._connection, kind, self._query.vector, [row["id"] for row in rows]
        )
        best = sorted(scores, key=lambda item_id: -scores[item_id])[:BY_MEANING]
        arguments = _Arguments()
        ids = arguments.add(best)
        sql = f"""
            SELECT {self._selected(kind, arguments)} FROM {kind.table} WHERE id = ANY({ids}::uuid[])
            """
        return await self._fetch(kind, sql, arguments)

    async def _spread(self, kind: ItemKind) -> Spread:
        if self._dense_here:
            return await self._spread_here(kind)
        arguments = _Arguments()
        vector = self._vector(arguments)
        row = await self._connection.fetchrow(
            f"""
            SELECT avg(-(embedding <#> {vector})) AS mean, stddev_samp(-(embedding <#> {vector})) AS deviation
            FROM (SELECT embedding FROM {kind.table} WHERE embedding IS NOT NULL
                  ORDER BY id LIMIT {SAMPLE}) AS sample
            """,
            *arguments.values,
        )
        return _spread(row["mean"], row["deviation"]) if row else Spread()

    async def _spread_here(self, kind: ItemKind) -> Spread:
        rows = await self._connection.fetch(
            f"SELECT id FROM {kind.table} WHERE embedding IS NOT NULL ORDER BY id LIMIT {SAMPLE}"
        )
        assert self._query.vector is not None
        scores = await self._vectors.similarities(
            self._connection, kind, self._query.vector, [row["id"] for row in rows]
        )
        values = list(scores.values())
        if len(values) < 2:
            return Spread()
        mean = sum(values) / len(values)
        return _spread(mean, (sum((v - mean) ** 2 for v in values) / (len(values) - 1)) ** 0.5)

    async def _add_similarities(self, kind: ItemKind, found: Mapping[UUID, Candidate]) -> None:
        if not self._dense_here:
            return
        assert self._query.vector is not None
        scores = await self._vectors.similarities(
            self._connection, kind, self._query.vector, list(found)
        )
        for item_id, candidate in found.items():
            candidate.similarity = scores.get(item_id)

    def _selected(self, kind: ItemKind, arguments: _Arguments) -> str:
        masks = [
            f"(search_vector @@ {arguments.add(term.quoted)}::text::tsquery)::int << {bit}"
            for bit, term in enumerate(self._query.terms)
        ]
        similarity = "NULL::float8"
        if self._query.vector is not None and not self._dense_here:
            similarity = f"-(embedding <#> {self._vector(arguments)})"
        columns = _COLUMNS[kind]
        if "{confidence}" in columns:
            now = f"{arguments.add(self._query.request.now)}::timestamptz"
            columns = columns.format(confidence=effective_confidence_sql(now))
        return f"""id, {columns}, traits, length(content) AS length,
            {" | ".join(f"({mask})" for mask in masks) or "0"} AS matched, {similarity} AS similarity"""

    def _vector(self, arguments: _Arguments) -> str:
        assert self._query.vector is not None
        return self._vectors.parameter(arguments.add(self._vectors.encode(self._query.vector)))

    def _filters(self, kind: ItemKind, arguments: _Arguments) -> str:
        """Return the SQL condition of the request's filters."""
        request = self._query.request
        conditions = ["true"]
        if kind is ItemKind.EPISODE:
            conditions.append(f"(expires_at IS NULL OR expires_at > {arguments.add(request.now)})")
        elif not (kind is ItemKind.FACT and request.history):
            conditions.append("validity = 'active'")
        if request.trust is not None:
            conditions.append(f"trust = {arguments.add(request.trust)}")
        if request.sender is not None:
            conditions.append(f"sender = {arguments.add(request.sender)}")
        if request.scope is not None and kind is not ItemKind.EPISODE:
            conditions.append(f"scope IN ('global', {arguments.add(request.scope)})")
        if request.entity_id is not None:
            conditions.append(_about_entity(kind, arguments.add(request.entity_id)))
        began = "coalesce(valid_from, observed_at)" if kind is ItemKind.FACT else "observed_at"
        ended = "coalesce(valid_to, 'infinity')" if kind is ItemKind.FACT else "observed_at"
        if request.since is not None:
            conditions.append(f"{ended} >= {arguments.add(request.since)}")
        if request.until is not None:
            conditions.append(f"{began} < {arguments.add(request.until)}")
        return " AND ".join(conditions)

    async def _fetch(
        self, kind: ItemKind, sql: str, arguments: _Arguments
    ) -> dict[UUID, Candidate]:
        rows = await self._connection.fetch(sql, *arguments.values)
        return {row["id"]: Candidate(kind=kind, **dict(row)) for row in rows}


def _about_entity(kind: ItemKind, entity: str) -> str:
    match kind:
        case ItemKind.FACT:
            return f"(entity_id = {entity} OR object_entity_id = {entity})"
        case ItemKind.EPISODE:
            return f"""lower(speaker) IN (SELECT lower(name) FROM memory_entities,
                unnest(aliases || canonical_name) AS name WHERE memory_entities.id = {entity})"""
        case _:
            return f"{entity}::uuid IS NULL"


def _spread(mean: float | None, deviation: float | None) -> Spread:
    return Spread(mean or 0.0, deviation) if deviation else Spread(mean or 0.0)


def merged_ranges(
    candidates: Sequence[Candidate], reach: int = REACH
) -> dict[tuple[str, int], int]:
    """Return the ranges of turns around the candidates, overlapping ones joined."""
    turns: dict[str, list[int]] = {}
    for candidate in candidates:
        turns.setdefault(candidate.conversation, []).append(candidate.turn)
    found: dict[tuple[str, int], int] = {}
    for conversation, numbers in turns.items():
        ordered = sorted(numbers)
        low = high = ordered[0]
        for number in ordered:
            if number - reach > high + reach + 1:
                low = number
            high = number
            found[(conversation, low - reach)] = high + reach
    return found


def union_of(masks: Sequence[int]) -> int:
    return reduce(operator.or_, masks, 0)
