"""Export and import of a butler's memory as JSON. What was forgotten is in no export, and no import
brings it back."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

import asyncpg
from pydantic import BaseModel, ConfigDict, Field

from butlers.db.database import Connection
from butlers.domain.provenance import Provenance, Trust
from butlers.modules.memory.items import (
    MAX_CONTENT,
    ItemKind,
    ItemSource,
    Permanence,
    content_hash,
    fact_hash,
)
from butlers.modules.memory.learning.worth import junk_reason
from butlers.modules.memory.store.entities import create_entity, resolve_name
from butlers.modules.memory.store.episodes import NewEpisode, insert_episode
from butlers.modules.memory.store.events import is_buried
from butlers.modules.memory.store.facts import NewFact, store_fact
from butlers.modules.memory.store.rules import NewRule, store_rule
from butlers.modules.memory.trust import named_entity

_HIDDEN = ("embedding", "embedded_by", "search_vector", "traits")
Text = Annotated[str, Field(min_length=1, max_length=MAX_CONTENT)]


class _Imported(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    sender: str = "import"
    trust: Trust = Trust.OUTSIDE  # a file that does not say so is not the owner's word
    butler: str | None = None
    request_id: UUID | None = None
    session_id: UUID | None = None
    observed_at: datetime

    def source(self, butler: str) -> ItemSource:
        origin = Provenance(self.trust, self.sender, self.request_id, self.session_id)
        return ItemSource(self.butler or butler, origin, self.observed_at)


class ImportedEpisode(_Imported):
    content: Text
    speaker: Annotated[str, Field(min_length=1, max_length=200)]
    conversation: Annotated[str, Field(min_length=1, max_length=1_000)]
    importance: float = 5.0
    consolidation: Literal["pending", "done", "skipped", "dead"] = "skipped"
    expires_at: datetime | None = None


class ImportedFact(_Imported):
    subject: Annotated[str, Field(min_length=1, max_length=200)]
    predicate: Annotated[str, Field(min_length=1, max_length=80)]
    content: Text
    qualifier: str = ""
    scope: str = "global"
    permanence: Permanence = Permanence.STANDARD
    importance: float = 5.0
    confidence: Annotated[float, Field(ge=0, le=1)] = 1.0
    valid_from: datetime | None = None
    valid_to: datetime | None = None
    validity: Literal["active", "superseded", "expired", "retracted"] = "active"
    tags: list[str] = []


class ImportedRule(_Imported):
    content: Text
    scope: str = "global"
    confidence: float = 0.5


async def export_page(
    connection: Connection, kind: str, after: UUID | None, limit: int
) -> list[dict[str, Any]]:
    """Return items of a kind in the order of their ids; for the next page pass the last id."""
    table = "memory_entities" if kind == "entity" else ItemKind(kind).table
    rows = await connection.fetch(
        f"SELECT * FROM {table} WHERE $1::uuid IS NULL OR id > $1 ORDER BY id LIMIT $2",
        after,
        limit,
    )
    return [_plain(row) for row in rows]


def _plain(row: asyncpg.Record) -> dict[str, Any]:
    return {
        key: value.isoformat()
        if isinstance(value, datetime)
        else str(value)
        if isinstance(value, UUID)
        else value
        for key, value in row.items()
        if key not in _HIDDEN
    }


async def import_items(
    connection: Connection, butler: str, kind: str, items: list[dict[str, Any]]
) -> dict[str, int]:
    """Store exported items. Known, forgotten and worthless ones are skipped and counted."""
    counts = {"imported": 0, "known": 0, "forgotten": 0, "refused": 0}
    for item in items:
        counts[await _import_one(connection, butler, kind, item)] += 1
    return counts


async def _import_one(connection: Connection, butler: str, kind: str, item: dict[str, Any]) -> str:
    if kind == "entity":
        return await _import_entity(connection, butler, item)
    if kind == ItemKind.EPISODE:
        return await _import_episode(connection, butler, ImportedEpisode.model_validate(item))
    if kind == ItemKind.FACT:
        return await _import_fact(connection, butler, ImportedFact.model_validate(item))
    return await _import_rule(connection, butler, ImportedRule.model_validate(item))


async def _forgotten(
    connection: Connection, item: ImportedEpisode | ImportedFact | ImportedRule
) -> bool:
    if isinstance(item, ImportedFact):
        hashes = [fact_hash(item.subject, item.predicate, item.content)]
    else:
        hashes = [content_hash(item.content)]
    if item.request_id:
        hashes.append(content_hash(str(item.request_id)))
    return await is_buried(connection, *hashes)


async def _import_episode(connection: Connection, butler: str, item: ImportedEpisode) -> str:
    if await _forgotten(connection, item):
        return "forgotten"
    key = (
        f"request:{item.request_id}"
        if item.request_id
        else (
            f"import:{content_hash(f'{item.conversation}|{item.observed_at.isoformat()}|{item.content}')}"
        )
    )
    episode = NewEpisode(
        item.content,
        item.speaker,
        item.conversation,
        item.importance,
        item.expires_at,
        key,
        item.consolidation,
    )
    found = await insert_episode(connection, item.source(butler), episode)
    return "imported" if found else "known"


async def _import_fact(connection: Connection, butler: str, item: ImportedFact) -> str:
    if await _forgotten(connection, item):
        return "forgotten"
    if item.validity != "active" or junk_reason(item.content):
        return "refused"
    source = item.source(butler)
    if item.trust is Trust.OWNER:
        entity, subject = await named_entity(connection, source, item.subject, None)
    elif item.subject == item.sender:
        entity, subject = await named_entity(connection, source, item.sender, None)
    else:
        return "refused"  # outside text says nothing about others
    stored = await store_fact(
        connection,
        source,
        NewFact(
            subject=subject,
            predicate=item.predicate,
            content=item.content,
            entity_id=entity,
            qualifier=item.qualifier,
            scope=item.scope,
            permanence=item.permanence,
            importance=item.importance,
            confidence=item.confidence,
            valid_from=item.valid_from,
            valid_to=item.valid_to,
            tags=item.tags,
        ),
    )
    return "known" if stored.status == "confirmed" else "imported"


async def _import_rule(connection: Connection, butler: str, item: ImportedRule) -> str:
    if await _forgotten(connection, item):
        return "forgotten"
    if item.trust is not Trust.OWNER:
        return "refused"
    rule = NewRule(item.content, item.scope, item.confidence)
    _, status = await store_rule(connection, item.source(butler), rule)
    return "imported" if status == "stored" else "known"


async def _import_entity(connection: Connection, butler: str, item: dict[str, Any]) -> str:
    name = str(item["canonical_name"])
    if item.get("is_owner") or item.get("merged_into"):
        return "known"
    known = await resolve_name(connection, name, limit=1)
    if known and known[0][2] == "exact":
        return "known"
    source = ItemSource(
        butler,
        Provenance(Trust(item["trust"]), item["sender"]),
        datetime.fromisoformat(item["observed_at"]),
    )
    await create_entity(
        connection,
        source,
        name,
        item.get("entity_type", "other"),
        item.get("aliases", ()),
        metadata=item.get("metadata"),
    )
    return "imported"
