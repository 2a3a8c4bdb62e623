"""The search engine behind memory_search, memory_recall and the context block."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg

from butlers.db.database import Connection, Database
from butlers.modules.memory.embedding.embedder import NOT_INSTALLED
from butlers.modules.memory.embedding.vectors import VectorStore
from butlers.modules.memory.items import FADING, ItemKind
from butlers.modules.memory.search.candidates import (
    Candidate,
    CandidateReader,
    Spread,
    merged_ranges,
)
from butlers.modules.memory.search.fusion import WEIGHTS, Fusion, Scored
from butlers.modules.memory.search.query import AnalyzedQuery, SearchRequest, analyze, content_words

PREPARED = 512  # items embedded at most before one search; the others are found by words
EXPANDED = 100  # turns whose neighbours are read
RECENCY_HALF_LIFE_DAYS = 7.0


@dataclass(frozen=True, slots=True)
class Hit:
    row: asyncpg.Record
    kind: ItemKind
    score: float
    confidence: float
    parts: Mapping[str, float]

    @property
    def id(self) -> UUID:
        found: UUID = self.row["id"]
        return found


@dataclass(frozen=True, slots=True)
class SearchResult:
    hits: tuple[Hit, ...]
    query: AnalyzedQuery
    notes: tuple[str, ...] = ()  # parts that could not take part


class SearchEngine:
    def __init__(
        self,
        database: Database,
        vectors: VectorStore,
        weights: Mapping[str, float] = WEIGHTS,
    ) -> None:
        self._database = database
        self._vectors = vectors
        self._weights = weights

    async def search(self, request: SearchRequest) -> SearchResult:
        """Return the best items for a request."""
        notes = await self._prepare(request)
        async with self._database.transaction(readonly=True) as connection:
            query = await self._analyzed(connection, request)
            scored = await self._scored(connection, query)
            kept = [one for one in scored if one.candidate.confidence >= request.min_confidence]
            hits = await _read_rows(connection, kept[: request.limit])
        if query.corrected:
            notes.append(f"words not found were corrected: {', '.join(query.corrected)}")
        return SearchResult(hits, query, tuple(notes))

    async def recall(self, request: SearchRequest) -> SearchResult:
        """Return the items worth remembering for a topic: relevance, importance, recency, confidence."""
        found = await self.search(replace(request, limit=max(50, request.limit)))
        hits = sorted(
            (_recalled(hit, found.hits, request.now) for hit in found.hits),
            key=lambda hit: (-hit.score, hit.id.int),
        )
        return replace(found, hits=tuple(hits[: request.limit]))

    async def candidates(self, request: SearchRequest) -> tuple[list[Scored], AnalyzedQuery]:
        """Return every scored candidate, for benchmarks."""
        await self._prepare(request)
        async with self._database.transaction(readonly=True) as connection:
            query = await self._analyzed(connection, request)
            return await self._scored(connection, query), query

    async def _prepare(self, request: SearchRequest) -> list[str]:
        if request.mode == "keyword":
            return []
        if not self._vectors.available:
            return [NOT_INSTALLED]
        left = await self._vectors.prepare(self._database, PREPARED)
        return [f"{left} items are not embedded yet and were searched by words"] if left else []

    async def _analyzed(self, connection: Connection, request: SearchRequest) -> AnalyzedQuery:
        query = await analyze(connection, request)
        if request.mode == "semantic":
            query = replace(query, terms=())
        if request.mode == "keyword" or not self._vectors.available:
            return query
        texts = [request.text, content_words(query) or request.text]
        both = await self._vectors.embedder.embed(texts)
        return replace(query, vector=both.mean(axis=0))

    async def _scored(self, connection: Connection, query: AnalyzedQuery) -> list[Scored]:
        reader = CandidateReader(connection, self._vectors, query)
        pool: dict[UUID, Candidate] = {}
        spreads: dict[ItemKind, Spread] = {}
        for kind in query.request.kinds:
            found, spreads[kind] = await reader.read(kind)
            pool |= found
        fusion = Fusion(query, spreads, self._weights)
        turns = [one for one in pool.values() if one.kind is ItemKind.EPISODE]
        if turns:
            chosen = sorted(turns, key=fusion.preliminary, reverse=True)[:EXPANDED]
            others = {key: one for key, one in pool.items() if one.kind is not ItemKind.EPISODE}
            pool = others | await reader.windows(merged_ranges(chosen))
        return fusion.rank(pool.values(), turns)


async def _read_rows(connection: Connection, scored: Sequence[Scored]) -> tuple[Hit, ...]:
    rows: dict[UUID, Any] = {}
    for kind in ItemKind:
        ids = [one.candidate.id for one in scored if one.candidate.kind is kind]
        if ids:
            found = await connection.fetch(
                f"SELECT * FROM {kind.table} WHERE id = ANY($1::uuid[])", ids
            )
            rows |= {row["id"]: row for row in found}
    return tuple(
        Hit(
            rows[one.candidate.id],
            one.candidate.kind,
            one.score,
            one.candidate.confidence,
            one.parts,
        )
        for one in scored
        if one.candidate.id in rows
    )


def _recalled(hit: Hit, all_hits: Sequence[Hit], now: datetime) -> Hit:
    best, worst = all_hits[0].score, all_hits[-1].score
    relevance = (hit.score - worst) / (best - worst) if best > worst else 1.0
    importance = (hit.row["importance"] if hit.kind is not ItemKind.RULE else 5.0) / 10
    days = max(0.0, (now - hit.row["observed_at"]).total_seconds() / 86_400)
    recency = 0.5 ** (days / RECENCY_HALF_LIFE_DAYS)
    parts = {
        "relevance": 0.4 * relevance,
        "importance": 0.3 * importance,
        "recency": 0.2 * recency,
        "confidence": 0.1 * hit.confidence,
    }
    return replace(hit, score=sum(parts.values()), parts=parts)


def is_fading(hit: Hit) -> bool:
    return hit.kind is ItemKind.FACT and hit.confidence < FADING
