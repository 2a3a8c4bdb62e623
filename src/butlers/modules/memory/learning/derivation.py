"""Answer of a consolidation session: its strict form, and how each entry is applied.

The server decides what an entry may do: it belongs to the source of the messages that the session read, it
names one of them, and outside text may only become a fact about its author.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any
from uuid import UUID

import asyncpg
import structlog
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from butlers.db.database import Connection
from butlers.domain.errors import ButlersError, OutputParseError
from butlers.domain.provenance import Provenance, Trust
from butlers.modules.memory.items import (
    MAX_CONTENT,
    ItemSource,
    Permanence,
    Relation,
    content_hash,
    fact_hash,
    normalized,
)
from butlers.modules.memory.learning.worth import junk_reason
from butlers.modules.memory.store.entities import author_entity, get_entity
from butlers.modules.memory.store.events import is_buried, link, log_event
from butlers.modules.memory.store.facts import NewFact, confirm_fact, get_fact, store_fact
from butlers.modules.memory.store.rules import NewRule, store_rule
from butlers.modules.memory.trust import named_entity

log = structlog.get_logger()

MAX_ANSWER = 200_000  # characters
Text = Annotated[str, Field(min_length=1, max_length=MAX_CONTENT)]
Word = Annotated[str, Field(min_length=1, max_length=80)]
Number = Annotated[int, Field(ge=1, le=1_000)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class DerivedFact(_Strict):
    episode: Number
    subject: Word
    predicate: Word
    content: Text
    qualifier: Annotated[str, Field(max_length=80)] = ""
    permanence: Permanence = Permanence.STANDARD
    importance: Annotated[float, Field(ge=0, le=10)] = 5.0


class ChangedFact(_Strict):
    episode: Number
    id: UUID
    content: Text


class DerivedRule(_Strict):
    episode: Number
    content: Text


class ConsolidationAnswer(_Strict):
    new_facts: Annotated[list[DerivedFact], Field(max_length=100)] = []
    updated_facts: Annotated[list[ChangedFact], Field(max_length=100)] = []
    new_rules: Annotated[list[DerivedRule], Field(max_length=20)] = []
    confirmations: Annotated[list[UUID], Field(max_length=100)] = []


@dataclass(frozen=True, slots=True)
class EpisodeBatch:
    """Episodes of one source, which one session reads."""

    rows: tuple[asyncpg.Record, ...]

    @property
    def trust(self) -> Trust:
        return Trust(self.rows[0]["trust"])

    @property
    def ids(self) -> list[UUID]:
        return [row["id"] for row in self.rows]

    def source(self, row: asyncpg.Record, session_id: UUID) -> ItemSource:
        origin = Provenance(self.trust, row["sender"], row["request_id"], session_id)
        return ItemSource(row["butler"], origin, row["observed_at"])


def parse_answer(text: str) -> ConsolidationAnswer:
    """Return the validated answer. Raises OutputParseError for anything but one JSON object."""
    body = text.strip()
    if body.startswith("```"):
        body = body.removeprefix("```json").removeprefix("```").removesuffix("```").strip()
    if len(body) > MAX_ANSWER:
        raise OutputParseError(f"the answer has {len(body):,} characters")
    try:
        return ConsolidationAnswer.model_validate(json.loads(body))
    except (ValueError, RecursionError, ValidationError) as error:
        reason = " ".join(str(error).split())[:300]
        raise OutputParseError(f"the answer is not the JSON that was asked for: {reason}") from None


async def apply_answer(
    connection: Connection, batch: EpisodeBatch, answer: ConsolidationAnswer, session_id: UUID
) -> dict[str, int]:
    """Apply each entry in its own savepoint; an entry that breaks a rule is refused and counted."""
    entries: Sequence[DerivedFact | ChangedFact | DerivedRule | UUID] = [
        *answer.new_facts,
        *answer.updated_facts,
        *answer.new_rules,
        *answer.confirmations,
    ]
    counts = {"applied": 0, "refused": 0}
    for entry in entries:
        row = _cited(batch, entry)
        source = batch.source(row or batch.rows[0], session_id)
        try:
            if row is None:
                raise OutputParseError("the entry names no message of this batch")
            async with connection.transaction():
                await _apply_entry(connection, batch, entry, row, source)
            counts["applied"] += 1
        except (ButlersError, asyncpg.PostgresError) as error:
            counts["refused"] += 1
            log.info("memory entry refused", kind=type(entry).__name__, reason=str(error)[:200])
    await log_event(
        connection, "consolidated", "memory", None, batch.source(batch.rows[0], session_id), counts
    )
    return counts


def _cited(batch: EpisodeBatch, entry: Any) -> asyncpg.Record | None:
    if isinstance(entry, UUID):
        return batch.rows[-1]
    return batch.rows[entry.episode - 1] if entry.episode <= len(batch.rows) else None


async def _apply_entry(
    connection: Connection,
    batch: EpisodeBatch,
    entry: DerivedFact | ChangedFact | DerivedRule | UUID,
    row: asyncpg.Record,
    source: ItemSource,
) -> None:
    match entry:
        case UUID():
            await _confirm(connection, entry, source)
        case DerivedRule():
            await _add_rule(connection, entry, row, source)
        case DerivedFact():
            await _add_fact(connection, entry, row, source)
        case ChangedFact():
            known = await get_fact(connection, entry.id)
            _require_same_source(known, source)
            changed = DerivedFact(
                episode=entry.episode,
                subject=known["subject"],
                predicate=known["predicate"],
                content=entry.content,
                qualifier=known["qualifier"],
                permanence=Permanence(known["permanence"]),
                importance=known["importance"],
            )
            await _add_fact(connection, changed, row, source, known["entity_id"])


async def _confirm(connection: Connection, fact_id: UUID, source: ItemSource) -> None:
    _require_same_source(await get_fact(connection, fact_id), source)
    await confirm_fact(connection, source, fact_id)


def _require_same_source(known: asyncpg.Record, source: ItemSource) -> None:
    if known["trust"] != source.provenance.trust or (
        not source.is_owner and known["sender"] != source.sender
    ):
        raise OutputParseError("the fact belongs to another source")


async def _add_rule(
    connection: Connection, entry: DerivedRule, row: asyncpg.Record, source: ItemSource
) -> None:
    if not source.is_owner:
        raise OutputParseError("outside text cannot become a rule")
    await _refuse_worthless(connection, entry.content, content_hash(entry.content))
    rule = NewRule(entry.content, source_episode_id=row["id"])
    rule_id, _ = await store_rule(connection, source, rule)
    await link(connection, rule_id, row["id"], Relation.DERIVED_FROM)


async def _add_fact(
    connection: Connection,
    entry: DerivedFact,
    row: asyncpg.Record,
    source: ItemSource,
    entity_id: UUID | None = None,
) -> None:
    if source.is_owner:
        entity_id, subject = await named_entity(connection, source, entry.subject, entity_id)
    else:
        author = await get_entity(connection, await author_entity(connection, source))
        names = {normalized(n) for n in (author["canonical_name"], *author["aliases"])}
        if normalized(entry.subject) not in names:
            raise OutputParseError("outside text may only become a fact about its author")
        entity_id, subject = author["id"], author["canonical_name"]
    predicate = predicate_key(entry.predicate)
    digest = fact_hash(subject, predicate, entry.content)
    await _refuse_worthless(connection, entry.content, digest)
    await store_fact(
        connection,
        source,
        NewFact(
            subject=subject,
            predicate=predicate,
            content=entry.content.strip(),
            entity_id=entity_id,
            qualifier=normalized(entry.qualifier),
            permanence=entry.permanence,
            importance=entry.importance,
            source_episode_id=row["id"],
        ),
    )


async def _refuse_worthless(connection: Connection, content: str, digest: str) -> None:
    if reason := junk_reason(content):
        raise OutputParseError(f"not worth remembering: {reason}")
    if await is_buried(connection, digest):
        raise OutputParseError("it was forgotten")


def predicate_key(predicate: str) -> str:
    return "_".join(normalized(predicate).split()) or "note"
