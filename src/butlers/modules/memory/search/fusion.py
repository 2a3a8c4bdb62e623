"""Fusion: one score per candidate from words, meaning, names, time and its neighbours.

Similarities are compared as z-scores, words as the share of the query's weight that an item covers, so that
a part with nothing to say adds the same to every candidate. The weights were fitted to questions about
conversations (`benchmarks/memory_recall.py --fit`); no weight belongs to a single word.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID

from butlers.modules.memory.items import ItemKind
from butlers.modules.memory.search.candidates import Candidate, Spread, union_of
from butlers.modules.memory.search.query import AnalyzedQuery
from butlers.modules.memory.search.traits import Trait

WEIGHTS: Mapping[str, float] = {
    "meaning": 0.55,
    "meaning_before": 0.27,
    "meaning_around": 0.04,
    "meaning_conversation": 0.53,
    "words": 1.47,
    "words_around": 2.69,
    "words_conversation": 1.25,
    "name": 1.25,
    "asked_time": 1.49,
    "asked_number": 0.82,
    "asked_name": 0.69,
    "statement": 0.57,
    "length": 0.15,
    "time": 2.73,
    "confidence": 1.0,
}
PARTS: Mapping[str, tuple[str, ...]] = {
    "dense": ("meaning", "meaning_before", "meaning_around", "meaning_conversation"),
    "lexical": ("words", "words_around", "words_conversation"),
    "neighbours": (
        "meaning_before",
        "meaning_around",
        "meaning_conversation",
        "words_around",
        "words_conversation",
    ),
    "names": ("name",),
    "time": ("time",),
    "question form": ("asked_time", "asked_number", "asked_name"),
    "statement form": ("statement", "length"),
}
AROUND = 2  # turns on each side
BEST = 3  # turns whose mean stands for their conversation
TYPICAL_LENGTH, LENGTH_SPREAD = 4.7, 0.6  # of log(1 + characters)
AFTERWARDS_DAYS = 14  # something is often told some days after it happened


@dataclass(frozen=True, slots=True)
class Scored:
    candidate: Candidate
    score: float
    parts: Mapping[str, float]  # contribution of each part


class Fusion:
    """Scores candidates of one query."""

    def __init__(
        self,
        query: AnalyzedQuery,
        spreads: Mapping[ItemKind, Spread],
        weights: Mapping[str, float] = WEIGHTS,
    ) -> None:
        self._query = query
        self._spreads = spreads
        self._weights = weights

    def preliminary(self, candidate: Candidate) -> float:
        """Return a first score without neighbours, to choose whose neighbours are read."""
        weights = self._weights
        covered = (weights["words"] + weights["words_around"]) * self._covered(candidate.matched)
        meaning = (weights["meaning"] + weights["meaning_conversation"]) * self._z(candidate)
        return covered + meaning + weights["name"] * self._name(candidate)

    def rank(
        self, candidates: Iterable[Candidate], matches: Iterable[Candidate] = ()
    ) -> list[Scored]:
        """Return the candidates, best first. ``matches`` are further turns of their conversations."""
        pool = list(candidates)
        turns = {(one.conversation, one.turn): one for one in pool if one.kind is ItemKind.EPISODE}
        talks = self._conversations([*pool, *matches])
        scored = [self._score(one, self.features(one, turns, talks)) for one in pool]
        return sorted(scored, key=lambda one: (-one.score, one.candidate.id.int))

    def _score(self, candidate: Candidate, values: Mapping[str, float]) -> Scored:
        parts = {name: self._weights[name] * value for name, value in values.items() if value}
        return Scored(candidate, sum(parts.values()), parts)

    def features(
        self,
        one: Candidate,
        turns: Mapping[tuple[str, int], Candidate],
        talks: Mapping[str, tuple[float, float]],
    ) -> dict[str, float]:
        own, covered = self._z(one), self._covered(one.matched)
        traits, asked = Trait(one.traits), self._query.asked
        values = {
            "meaning": own,
            "words": covered,
            "name": self._name(one),
            "asked_time": float(Trait.TIME in asked and Trait.TIME in traits),
            "asked_number": float(Trait.NUMBER in asked and Trait.NUMBER in traits),
            "asked_name": float(Trait.NAME in asked and Trait.NAME in traits),
            "time": self._time(one),
        }
        if one.kind is ItemKind.EPISODE:
            return values | self._turn_features(one, traits, turns, talks)
        # A fact is a statement by itself: it stands for its whole conversation.
        return values | {
            "meaning_before": own,
            "meaning_conversation": own,
            "words_around": covered,
            "words_conversation": covered,
            "statement": 1.5,
            "confidence": one.confidence,
        }

    def _turn_features(
        self,
        one: Candidate,
        traits: Trait,
        turns: Mapping[tuple[str, int], Candidate],
        talks: Mapping[str, tuple[float, float]],
    ) -> dict[str, float]:
        near = {
            step: turns.get((one.conversation, one.turn + step))
            for step in range(-AROUND, AROUND + 1)
            if step
        }
        masks = [one.matched, *(other.matched for other in near.values() if other)]
        meaning, covered = talks.get(one.conversation, (0.0, 0.0))
        return {
            "meaning_before": self._z(near[-1]),
            "meaning_around": sum(map(self._z, near.values())),
            "meaning_conversation": meaning,
            "words_around": self._covered(union_of(masks)),
            "words_conversation": covered,
            "statement": float(traits.specificity),
            "length": (math.log1p(one.length) - TYPICAL_LENGTH) / LENGTH_SPREAD,
        }

    def _conversations(self, turns: Collection[Candidate]) -> dict[str, tuple[float, float]]:
        """Return, for each conversation, the meaning of its best turns and the words it covers."""
        grouped: dict[str, dict[UUID, Candidate]] = {}
        for one in turns:
            if one.kind is ItemKind.EPISODE:
                grouped.setdefault(one.conversation, {})[one.id] = one
        return {
            conversation: (
                _mean_of_best([self._z(one) for one in members.values()]),
                self._covered(union_of([one.matched for one in members.values()])),
            )
            for conversation, members in grouped.items()
        }

    def _z(self, candidate: Candidate | None) -> float:
        if candidate is None or candidate.similarity is None:
            return 0.0
        return self._spreads[candidate.kind].z(candidate.similarity)

    def _covered(self, matched: int) -> float:
        """Return the share of the query's weight that the matched terms carry."""
        terms = self._query.terms
        weight = sum(term.weight for bit, term in enumerate(terms) if matched >> bit & 1)
        return weight / self._query.total_weight

    def _name(self, one: Candidate) -> float:
        """Return 1 if the query names the speaker or subject, -1 if it names another, else 0."""
        query = self._query
        if not query.names or one.kind is ItemKind.RULE or len(query.entities) > 1:
            return 0.0
        if one.entity_id is not None and one.entity_id in query.entities:
            return 1.0
        return 1.0 if one.name in query.names else -1.0

    def _time(self, one: Candidate) -> float:
        span = self._query.span
        if span is None:
            return 0.0
        if span.contains(one.observed_at):
            return 1.0
        return 0.5 if span.near(one.observed_at, AFTERWARDS_DAYS) else 0.0


def _mean_of_best(values: list[float]) -> float:
    best = sorted(values, reverse=True)[:BEST]
    return sum(best) / len(best) if best else 0.0
