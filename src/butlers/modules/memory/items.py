"""Vocabulary of memory: kinds of items, their source, and how confidence decays."""

from __future__ import annotations

import hashlib
import math
import unicodedata
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from butlers.domain.provenance import Provenance

OWNER_NAME, UNKNOWN = "owner", "unknown"
FADING, EXPIRED = 0.2, 0.05  # effective confidence below which a fact fades and is no longer shown
MAX_CONTENT = 8_000  # characters of one item


class ItemKind(StrEnum):
    EPISODE = "episode"
    FACT = "fact"
    RULE = "rule"

    @property
    def table(self) -> str:
        return f"memory_{self.value}s"


class Permanence(StrEnum):
    PERMANENT = "permanent"
    STABLE = "stable"
    STANDARD = "standard"
    VOLATILE = "volatile"
    EPHEMERAL = "ephemeral"

    @property
    def decay_per_day(self) -> float:
        return DECAY[self]


DECAY = {
    Permanence.PERMANENT: 0.0,
    Permanence.STABLE: 0.002,
    Permanence.STANDARD: 0.008,
    Permanence.VOLATILE: 0.03,
    Permanence.EPHEMERAL: 0.1,
}


class Relation(StrEnum):
    DERIVED_FROM = "derived_from"
    SUPPORTS = "supports"
    CONTRADICTS = "contradicts"
    SUPERSEDES = "supersedes"
    RELATED_TO = "related_to"


@dataclass(frozen=True, slots=True)
class ItemSource:
    """Origin of an item: the server sets it from the call, never from a model's arguments."""

    butler: str
    provenance: Provenance
    observed_at: datetime

    @property
    def is_owner(self) -> bool:
        return self.provenance.is_trusted

    @property
    def sender(self) -> str:
        return self.provenance.sender or (OWNER_NAME if self.is_owner else UNKNOWN)

    def columns(self) -> tuple[Any, ...]:
        """Return the values of SOURCE_COLUMNS."""
        origin = self.provenance
        return (
            self.butler,
            origin.request_id,
            origin.session_id,
            self.sender,
            str(origin.trust),
            self.observed_at,
        )


SOURCE_COLUMNS = "butler, request_id, session_id, sender, trust, observed_at"


def effective_confidence(
    confidence: float, permanence: str, last_confirmed_at: datetime, now: datetime
) -> float:
    """Return the confidence after decay since the fact was last confirmed."""
    days = max(0.0, (now - last_confirmed_at).total_seconds() / 86_400)
    return confidence * math.exp(-Permanence(permanence).decay_per_day * days)


def effective_confidence_sql(now: str) -> str:
    """Return the same as an SQL expression over a row of memory_facts; ``now`` is a parameter."""
    rates = " ".join(f"WHEN '{kind}' THEN {rate}" for kind, rate in DECAY.items())
    days = f"greatest(0, extract(epoch FROM {now} - last_confirmed_at) / 86400)"
    return f"(confidence * exp(-(CASE permanence {rates} END) * {days}))"


def normalized(text: str) -> str:
    """Return the words of a text in lower case without accents and punctuation."""
    plain = unicodedata.normalize("NFKD", text.casefold())
    kept = (c if c.isalnum() else " " for c in plain if unicodedata.category(c) != "Mn")
    return " ".join("".join(kept).split())


def content_hash(text: str) -> str:
    """Return a hash that is equal for texts that differ only in case, accents and punctuation."""
    return hashlib.sha256((normalized(text) or text).encode("utf-8", "surrogatepass")).hexdigest()


def fact_hash(subject: str, predicate: str, content: str) -> str:
    """Return the hash of a fact. The value alone would also stand for facts about others."""
    return content_hash(f"{subject} {predicate} {content}")


def word_set(words: str) -> frozenset[str]:
    """Return the words of a text, for word lists in the source."""
    return frozenset(words.split())
