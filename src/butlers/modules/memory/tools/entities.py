"""Tools about the people, organizations and places that facts are about."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import Field

from butlers.domain.caller import SESSIONS
from butlers.domain.errors import NotAllowed
from butlers.modules.memory.items import ItemKind
from butlers.modules.memory.shown import shown_entity, shown_item
from butlers.modules.memory.store import entities
from butlers.modules.memory.store.events import log_event
from butlers.modules.memory.store.facts import facts_of_entity
from butlers.modules.memory.trust import is_outside_request, source_of
from butlers.tools.context import CallContext, require_trusted_input
from butlers.tools.declaration import Effect, tool

Name = Annotated[str, Field(min_length=1, max_length=200)]
Aliases = Annotated[list[Name], Field(max_length=50)]
EntityType = Literal["person", "organization", "place", "other"]


@tool(callers=SESSIONS)
async def memory_entity_create(
    ctx: CallContext,
    name: Name,
    type: EntityType = "person",  # noqa: A002
    aliases: Aliases | None = None,
    metadata: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Add a person, organization or place. First look with memory_entity_resolve whether it is known."""
    require_trusted_input(ctx, "add entities")
    source = source_of(ctx)
    entity_id = await entities.create_entity(
        ctx.connection, source, name, type, aliases or (), metadata=metadata
    )
    await log_event(ctx.connection, "created", "entity", entity_id, source)
    return {"id": str(entity_id), "status": "created"}


@tool(callers=SESSIONS, effect=Effect.READ)
async def memory_entity_get(ctx: CallContext, id: UUID) -> dict[str, Any]:  # noqa: A002
    """Return an entity with its current facts."""
    _require_own_message(ctx)
    row = await entities.get_entity(ctx.connection, id)
    facts = await facts_of_entity(ctx.connection, row["id"])
    return {
        **shown_entity(ctx, row),
        "facts": [shown_item(ctx, ItemKind.FACT, fact) for fact in facts],
    }


@tool(callers=SESSIONS)
async def memory_entity_update(
    ctx: CallContext,
    id: UUID,  # noqa: A002
    name: Name | None = None,
    type: EntityType | None = None,  # noqa: A002
    aliases: Aliases | None = None,
    metadata: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Change an entity. aliases replaces the list; metadata is merged."""
    require_trusted_input(ctx, "change entities")
    row = await entities.update_entity(ctx.connection, id, name, type, aliases, metadata)
    await log_event(ctx.connection, "updated", "entity", row["id"], source_of(ctx))
    return {"id": str(row["id"]), "status": "updated"}


@tool(callers=SESSIONS, effect=Effect.READ)
async def memory_entity_resolve(
    ctx: CallContext,
    name: Name,
    context: Annotated[str, Field(max_length=500)] = "",
    limit: Annotated[int, Field(ge=1, le=20)] = 5,
) -> dict[str, Any]:
    """Find the entities that a name may mean, best first. context: words that tell namesakes apart."""
    _require_own_message(ctx)
    found = await entities.resolve_name(ctx.connection, name, context, limit)
    return {
        "matches": [
            {**shown_entity(ctx, row), "score": round(score), "match": why}
            for row, score, why in found
        ]
    }


@tool(callers=SESSIONS)
async def memory_entity_merge(ctx: CallContext, keep: UUID, merge: UUID) -> dict[str, Any]:
    """Join two entities that are the same: facts and names of merge move to keep."""
    require_trusted_input(ctx, "merge entities")
    moved = await entities.merge_entities(ctx.connection, keep, merge)
    detail = {"merged": str(merge), "facts": moved}
    await log_event(ctx.connection, "merged", "entity", keep, source_of(ctx), detail)
    return {"id": str(keep), "status": "merged", "facts_moved": moved}


def _require_own_message(ctx: CallContext) -> None:
    """Raise NotAllowed in a session for another person's message: entities are the owner's address book."""
    if is_outside_request(ctx):
        raise NotAllowed(
            "a session for a message of another person may not read the owner's entities",
            hint="answer without them, or ask the owner with notify",
        )


TOOLS = (
    memory_entity_create,
    memory_entity_get,
    memory_entity_update,
    memory_entity_resolve,
    memory_entity_merge,
)
