"""A search request, and what is known about it before any item is read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from difflib import get_close_matches
from typing import TYPE_CHECKING, Literal
from uuid import UUID

from butlers.db.database import Connection
from butlers.modules.memory.items import ItemKind, normalized, word_set
from butlers.modules.memory.search.times import TimeSpan, find_span
from butlers.modules.memory.search.traits import Trait, asked_traits
from butlers.modules.memory.store.entities import known_names

if TYPE_CHECKING:
    from butlers.modules.memory.embedding.encoder import Array

Mode = Literal["hybrid", "semantic", "keyword"]
MAX_TERMS = 16
MAX_QUERY = 2_000  # characters that are looked at
LONGEST_NAME = 4  # words
COUNTED = 5_000  # rows up to which a table is counted exactly
TYPO = 0.75  # similarity from which a word counts as a mistyped one
TYPO_LENGTH, LONGEST_WORD = 4, 40
VOCABULARY = 20_000  # rows up to which an unknown word is compared with all known ones
_SELF = word_set("i me my mine myself ich mich mir mein meine je moi mon yo mi io")
_QUESTION_WORDS = word_set("""
    what when where who whom whose which how why did does do is are was were has have had can could would
    will should a an the of to in on at for from with by and or s t about his her their its this that
""")
NO_TRAIT = Trait(0)


@dataclass(frozen=True, slots=True)
class SearchRequest:
    text: str
    now: datetime
    kinds: tuple[ItemKind, ...] = tuple(ItemKind)
    mode: Mode = "hybrid"
    limit: int = 10
    scope: str | None = None
    entity_id: UUID | None = None
    since: datetime | None = None
    until: datetime | None = None
    trust: str | None = None
    sender: str | None = None
    min_confidence: float = 0.0
    history: bool = False  # also facts that are no longer valid


@dataclass(frozen=True, slots=True)
class Term:
    """A word of the query in its stem form, with the number of items that contain it."""

    lexeme: str
    count: int
    weight: float

    @property
    def quoted(self) -> str:
        return "'" + self.lexeme.replace("\\", "\\\\").replace("'", "''") + "'"


@dataclass(frozen=True, slots=True)
class AnalyzedQuery:
    request: SearchRequest
    terms: tuple[Term, ...] = ()
    names: tuple[str, ...] = ()  # names and aliases of the entities it names, in lower case
    entities: frozenset[UUID] = frozenset()
    span: TimeSpan | None = None
    asked: Trait = NO_TRAIT
    vector: Array | None = None
    corrected: tuple[str, ...] = field(default=())  # words replaced by the typo fallback

    @property
    def total_weight(self) -> float:
        return sum(term.weight for term in self.terms) or 1.0


async def analyze(connection: Connection, request: SearchRequest) -> AnalyzedQuery:
    text = request.text[:MAX_QUERY]
    words = normalized(text).split()
    named = await known_names(connection, _phrases(words))
    owner = not _SELF.isdisjoint(words)
    names = {n.lower() for row in named for n in (row["canonical_name"], *row["aliases"])}
    name_words = {word for name in names for word in normalized(name).split()}
    entities = {row["id"] for row in named}
    if owner and not named:
        entities |= {
            row["id"] for row in await known_names(connection, ["owner"]) if row["is_owner"]
        }
        names.add("owner")
    plain = " ".join(word for word in words if word not in name_words)
    terms, corrected = await _terms(connection, plain)
    return AnalyzedQuery(
        request,
        terms,
        tuple(sorted(names)),
        frozenset(entities),
        find_span(text, request.now),
        asked_traits(text),
        corrected=corrected,
    )


def _phrases(words: Sequence[str]) -> list[str]:
    return [
        " ".join(words[start : start + length])
        for length in range(1, LONGEST_NAME + 1)
        for start in range(len(words) - length + 1)
    ]


def content_words(query: AnalyzedQuery) -> str:
    """Return the query without question words and names, for a second vector."""
    names = {word for name in query.names for word in normalized(name).split()}
    words = normalized(query.request.text[:MAX_QUERY]).split()
    kept = [word for word in words if word not in _QUESTION_WORDS and word not in names]
    return " ".join(kept)


async def _terms(connection: Connection, text: str) -> tuple[tuple[Term, ...], tuple[str, ...]]:
    counts = " + ".join(
        f"(SELECT count(*) FROM {kind.table} WHERE search_vector @@ term)" for kind in ItemKind
    )
    rows = await connection.fetch(
        f"""
        SELECT lexeme, {counts} AS count FROM (
            SELECT lexeme, plainto_tsquery('pg_catalog.simple', lexeme) AS term
            FROM unnest(to_tsvector('pg_catalog.english', $1)) ORDER BY positions[1] LIMIT {MAX_TERMS}
        ) AS words
        """,
        text,
    )
    total = await _item_count(connection)
    found = [(row["lexeme"], row["count"]) for row in rows]
    corrected: tuple[str, ...] = ()
    if found and not any(count for _, count in found) and 0 < total <= VOCABULARY:
        found, corrected = await _corrected(connection, [lexeme for lexeme, _ in found])
    return tuple(
        Term(each, count, _weight(count, total)) for each, count in found if count
    ), corrected


def _weight(count: int, total: float) -> float:
    """Return the inverse document frequency, as BM25 defines it."""
    return math.log(1 + (max(total, count) - count + 0.5) / (count + 0.5))


async def _item_count(connection: Connection) -> float:
    """Return the number of items; large tables are estimated by the server's statistics."""
    parts = " + ".join(
        f"""CASE WHEN (SELECT reltuples FROM pg_class WHERE oid = '{kind.table}'::regclass) > {COUNTED}
        THEN (SELECT reltuples FROM pg_class WHERE oid = '{kind.table}'::regclass)
        ELSE (SELECT count(*) FROM {kind.table}) END"""
        for kind in ItemKind
    )
    return float(await connection.fetchval(f"SELECT {parts}"))


async def _corrected(
    connection: Connection, lexemes: list[str]
) -> tuple[list[tuple[str, int]], tuple[str, ...]]:
    """Replace unknown words by the most similar known ones."""
    union = " UNION ALL ".join(f"SELECT search_vector FROM {kind.table}" for kind in ItemKind)
    rows = await connection.fetch("SELECT word, ndoc FROM ts_stat($1)", union)
    found, corrected = [], []
    for lexeme in (each for each in lexemes if TYPO_LENGTH <= len(each) <= LONGEST_WORD):
        near = {
            row["word"]: row["ndoc"] for row in rows if abs(len(row["word"]) - len(lexeme)) <= 2
        }
        for best in get_close_matches(lexeme, near, n=1, cutoff=TYPO):
            found.append((best, near[best]))
            corrected.append(f"{lexeme} → {best}")
    return found, tuple(corrected)
