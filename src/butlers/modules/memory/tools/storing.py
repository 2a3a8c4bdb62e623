"""Tools that store, confirm, correct and rate memories."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any
from uuid import UUID

from pydantic import Field

from butlers.domain.caller import SESSIONS
from butlers.domain.errors import InvalidArguments
from butlers.modules.memory.items import (
    MAX_CONTENT,
    Permanence,
    content_hash,
    fact_hash,
    normalized,
)
from butlers.modules.memory.learning.derivation import predicate_key
from butlers.modules.memory.learning.worth import junk_reason
from butlers.modules.memory.store.entities import author_entity, get_entity
from butlers.modules.memory.store.episodes import NewEpisode, insert_episode
from butlers.modules.memory.store.events import lift_tombstone, log_event
from butlers.modules.memory.store.facts import (
    NewFact,
    confirm_fact,
    get_fact,
    retract_fact,
    rivals_of,
    store_fact,
)
from butlers.modules.memory.store.rules import NewRule, count_use, store_rule
from butlers.modules.memory.trust import is_outside_request, source_of, subject_entity
from butlers.tools.context import CallContext, require_trusted_input
from butlers.tools.declaration import tool

Content = Annotated[str, Field(min_length=1, max_length=MAX_CONTENT)]
Name = Annotated[str, Field(min_length=1, max_length=200)]
Word = Annotated[str, Field(min_length=1, max_length=80)]
Scope = Annotated[str, Field(min_length=1, max_length=80)]
Importance = Annotated[float, Field(ge=0, le=10)]
EPISODE_DAYS = timedelta(days=7)
OTHERS = "other people"  # speaker of what a session has read elsewhere


@tool(callers=SESSIONS)
async def memory_store_episode(
    ctx: CallContext, content: Content, importance: Importance = 5.0
) -> dict[str, Any]:
    """Keep a short account of something that happened, for some days. Messages are kept by themselves."""
    source = source_of(ctx)
    speaker = OTHERS
    if source.is_owner or is_outside_request(ctx):
        author = await get_entity(ctx.connection, await author_entity(ctx.connection, source))
        speaker = author["canonical_name"]
    thread = ctx.request.conversation if ctx.request else f"notes of {ctx.butler}"
    episode = NewEpisode(
        content.strip(),
        speaker,
        f"{thread}:{ctx.now:%Y-%m-%d}",
        importance,
        ctx.now + EPISODE_DAYS,
        f"session:{source.provenance.session_id}:{content_hash(content)}",
        # A session's own words are no input of consolidation.
        consolidation="skipped" if source.provenance.session_id else "pending",
    )
    found = await insert_episode(ctx.connection, source, episode)
    return {"id": str(found) if found else None, "status": "stored" if found else "known"}


@tool(callers=SESSIONS)
async def memory_store_fact(
    ctx: CallContext,
    predicate: Word,
    content: Content,
    subject: Name | None = None,
    entity_id: UUID | None = None,
    qualifier: Annotated[str, Field(max_length=80)] = "",
    permanence: Permanence = Permanence.STANDARD,
    importance: Importance = 5.0,
    valid_from: datetime | None = None,
    scope: Scope = "global",
    tags: Annotated[list[Word], Field(max_length=20)] | None = None,
) -> dict[str, Any]:
    """Store a lasting fact. Without subject and entity_id it is about the author of the message.

    One value per subject and predicate: a new one supersedes the old. With a qualifier several stand side by
    side (likes/sushi, likes/hiking).
    """
    if reason := junk_reason(content):
        raise InvalidArguments(
            f"this is not a fact: {reason}", hint="store only what stays true and useful"
        )
    entity, name = await subject_entity(ctx, ctx.connection, subject, entity_id)
    source = source_of(ctx)
    key = predicate_key(predicate)
    if source.is_owner:
        await lift_tombstone(ctx.connection, fact_hash(name, key, content))
    stored = await store_fact(
        ctx.connection,
        source,
        NewFact(
            subject=name,
            predicate=key,
            content=content.strip(),
            entity_id=entity,
            qualifier=normalized(qualifier),
            scope=scope,
            permanence=permanence,
            importance=importance,
            valid_from=valid_from,
            tags=tags or (),
        ),
    )
    return {
        "id": str(stored.id),
        "status": stored.status,
        "entity_id": str(entity),
        "superseded": str(stored.superseded) if stored.superseded else None,
        "contradicts": [str(other) for other in stored.contradicts],
    }


@tool(callers=SESSIONS)
async def memory_store_rule(
    ctx: CallContext, content: Content, scope: Scope = "global"
) -> dict[str, Any]:
    """Store how the owner wants things done from now on. Only the owner's own words make a rule."""
    require_trusted_input(ctx, "store rules")
    if reason := junk_reason(content):
        raise InvalidArguments(f"this is not a rule: {reason}")
    await lift_tombstone(ctx.connection, content_hash(content))
    rule_id, status = await store_rule(
        ctx.connection, source_of(ctx), NewRule(content.strip(), scope)
    )
    return {"id": str(rule_id), "status": status}


@tool(callers=SESSIONS)
async def memory_confirm(ctx: CallContext, id: UUID) -> dict[str, Any]:  # noqa: A002
    """Confirm that a fact is still true: its decay starts anew, and contradicting facts are retracted."""
    require_trusted_input(ctx, "confirm facts")
    source = source_of(ctx)
    row = await get_fact(ctx.connection, id)
    await confirm_fact(ctx.connection, source, id)
    settled = await rivals_of(ctx.connection, row)
    for other in settled:
        await retract_fact(ctx.connection, source, other["id"], "another value was confirmed")
    return {"id": str(id), "status": "confirmed", "retracted": [str(o["id"]) for o in settled]}


@tool(callers=SESSIONS)
async def memory_correct(
    ctx: CallContext,
    id: UUID,  # noqa: A002
    content: Content,
    valid_from: datetime | None = None,
) -> dict[str, Any]:
    """Replace a wrong fact. The correction wins over every other source; the old value stays as history."""
    require_trusted_input(ctx, "correct facts")
    source = source_of(ctx)
    wrong = await get_fact(ctx.connection, id)
    for other in [wrong, *await rivals_of(ctx.connection, wrong)]:
        await retract_fact(ctx.connection, source, other["id"], "corrected")
    stored = await store_fact(
        ctx.connection,
        source,
        NewFact(
            subject=wrong["subject"],
            predicate=wrong["predicate"],
            content=content.strip(),
            entity_id=wrong["entity_id"],
            qualifier=wrong["qualifier"],
            scope=wrong["scope"],
            permanence=Permanence(wrong["permanence"]),
            importance=max(wrong["importance"], 7.0),
            valid_from=valid_from,
            tags=wrong["tags"],
            metadata={"corrects": str(id)},
        ),
    )
    await log_event(ctx.connection, "corrected", "fact", stored.id, source, {"corrects": str(id)})
    return {"id": str(stored.id), "status": "corrected", "retracted": str(id)}


@tool(callers=SESSIONS)
async def memory_mark_helpful(ctx: CallContext, id: UUID) -> dict[str, Any]:  # noqa: A002
    """Say that a rule helped."""
    return await _rate(ctx, id, helpful=True)


@tool(callers=SESSIONS)
async def memory_mark_harmful(ctx: CallContext, id: UUID) -> dict[str, Any]:  # noqa: A002
    """Say that a rule did harm. It counts four times; such a rule becomes a warning."""
    return await _rate(ctx, id, helpful=False)


async def _rate(ctx: CallContext, rule_id: UUID, *, helpful: bool) -> dict[str, Any]:
    require_trusted_input(ctx, "rate rules")
    row = await count_use(ctx.connection, source_of(ctx), rule_id, helpful=helpful)
    score = round(row["effectiveness"], 2)
    return {"id": str(rule_id), "maturity": row["maturity"], "effectiveness": score}


TOOLS = (
    memory_store_episode,
    memory_store_fact,
    memory_store_rule,
    memory_confirm,
    memory_correct,
    memory_mark_helpful,
    memory_mark_harmful,
)
