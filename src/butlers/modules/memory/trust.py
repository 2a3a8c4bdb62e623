"""Rules of trust: outside text may become a fact about its author, never a rule or a fact about others.

The source of an item comes from the call. A session that has read words of other people, or that works for
another person's message, cannot change what is known about anybody but that person.
"""

from __future__ import annotations

from uuid import UUID

from butlers.db.database import Connection
from butlers.modules.memory.items import ItemSource, normalized
from butlers.modules.memory.store.entities import (
    ALIAS,
    EXACT,
    author_entity,
    create_entity,
    get_entity,
    owner_entity,
    resolve_name,
)
from butlers.tools.context import CallContext, require_trusted_input

OWNER_WORDS = frozenset({"owner", "the owner", "user", "the user", "me", "i", "myself", "self"})


def source_of(ctx: CallContext) -> ItemSource:
    """Return the origin of what this call stores."""
    return ItemSource(ctx.butler, ctx.provenance, ctx.now)


def is_outside_request(ctx: CallContext) -> bool:
    return ctx.request is not None and not ctx.request.is_owners


def visible_sender(ctx: CallContext) -> str | None:
    """Return the only sender whose items this session may read; None: all items.

    A session for another person's message sees what that person told, and nothing of the owner's.
    """
    return source_of(ctx).sender if is_outside_request(ctx) else None


async def subject_entity(
    ctx: CallContext, connection: Connection, subject: str | None, entity_id: UUID | None
) -> tuple[UUID, str]:
    """Return the entity that a fact may be about and its name. Raises NeedsApproval."""
    source = source_of(ctx)
    if source.is_owner:
        return await named_entity(connection, source, subject, entity_id)
    if not is_outside_request(ctx):
        require_trusted_input(ctx, "store facts")
    author = await author_entity(connection, source)
    row = await get_entity(connection, author)
    names = {normalized(name) for name in (row["canonical_name"], *row["aliases"], source.sender)}
    about_author = (
        entity_id == author if entity_id else subject is None or normalized(subject) in names
    )
    if row["is_owner"] or not about_author:
        require_trusted_input(ctx, f"store a fact about others than {source.sender}")
    return author, row["canonical_name"]


async def named_entity(
    connection: Connection, source: ItemSource, subject: str | None, entity_id: UUID | None
) -> tuple[UUID, str]:
    """Return the entity with this id or name; a new name becomes a new entity."""
    if entity_id is None and (subject is None or normalized(subject) in OWNER_WORDS):
        entity_id = await owner_entity(connection, source)
    if entity_id is not None:
        row = await get_entity(connection, entity_id)
        return row["id"], row["canonical_name"]
    assert subject is not None
    known = await resolve_name(connection, subject, limit=1)
    if known and known[0][1] in (EXACT, ALIAS):
        return known[0][0]["id"], known[0][0]["canonical_name"]
    kind = "person" if subject[:1].isupper() else "other"
    return await create_entity(connection, source, subject, kind), subject.strip()
