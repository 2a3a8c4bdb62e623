"""Recording of messages: each routed message becomes an episode, and its plain facts are stored at once."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from butlers.db.database import Connection
from butlers.domain.message import RouteRequest
from butlers.domain.provenance import Provenance, Trust
from butlers.modules.memory.items import MAX_CONTENT, ItemSource, content_hash, normalized
from butlers.modules.memory.learning.extract import ExtractedFact, extract_facts
from butlers.modules.memory.learning.worth import is_chatter
from butlers.modules.memory.store.entities import author_entity, get_entity
from butlers.modules.memory.store.episodes import NewEpisode, insert_episode
from butlers.modules.memory.store.events import is_buried, log_event
from butlers.modules.memory.store.facts import NewFact, store_fact
from butlers.modules.memory.trust import named_entity


async def record_message(
    connection: Connection, butler: str, route: RouteRequest, keep: timedelta
) -> bool:
    """Store the message and its plain facts, once per request. Return whether it is new."""
    request = route.request
    trust = Trust.OWNER if request.is_owners else Trust.OUTSIDE
    origin = Provenance(trust, request.source_sender_identity, request.request_id)
    source = ItemSource(butler, origin, request.received_at)
    text = route.text.strip()[:MAX_CONTENT]
    if not text or await is_buried(connection, content_hash(str(request.request_id))):
        return False
    author = await get_entity(connection, await author_entity(connection, source))
    episode = NewEpisode(
        text,
        author["canonical_name"],
        f"{request.conversation}:{request.received_at:%Y-%m-%d}",
        expires_at=request.received_at + keep,
        idempotency_key=f"request:{request.request_id}",
        consolidation="skipped" if is_chatter(text) else "pending",
    )
    episode_id = await insert_episode(connection, source, episode)
    if episode_id is None:
        return False
    for fact in extract_facts(text):
        entity = await _entity_of(connection, source, fact)
        if entity is None:
            await log_event(connection, "fact refused", "episode", episode_id, source)
            continue
        await store_fact(
            connection,
            source,
            NewFact(
                subject=entity[1],
                predicate=fact.predicate,
                content=fact.content,
                entity_id=entity[0],
                qualifier=fact.qualifier,
                permanence=fact.permanence,
                importance=fact.importance,
                source_episode_id=episode_id,
            ),
        )
    return True


async def _entity_of(connection: Connection, source: ItemSource, fact: ExtractedFact) -> Any | None:
    """Return the entity of a fact, or None if the author may not say anything about it."""
    author = await get_entity(connection, await author_entity(connection, source))
    names = {normalized(name) for name in (author["canonical_name"], *author["aliases"])}
    if fact.subject is None or normalized(fact.subject) in names:
        return author["id"], author["canonical_name"]
    if not source.is_owner:
        return None
    return await named_entity(connection, source, fact.subject, None)
