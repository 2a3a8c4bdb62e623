"""Tools of the owner for upkeep: forget, consolidate, clean up, export and import."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import Field, ValidationError

from butlers.domain.caller import OWNER_ONLY, PEERS, SESSIONS
from butlers.domain.errors import InvalidArguments
from butlers.modules.memory.learning.consolidation import request_consolidation
from butlers.modules.memory.propagation import request_forgetting_elsewhere
from butlers.modules.memory.store.exchange import export_page, import_items
from butlers.modules.memory.store.forgetting import ForgetRequest, forget
from butlers.modules.memory.tools.access import memory_of
from butlers.modules.memory.trust import source_of
from butlers.tools.context import CallContext, require_trusted_input
from butlers.tools.declaration import Effect, tool

ExportKind = Literal["entity", "episode", "fact", "rule"]
Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


@tool(callers=SESSIONS)
async def memory_forget(
    ctx: CallContext,
    ids: Annotated[list[UUID], Field(max_length=500)] | None = None,
    entity_id: UUID | None = None,
    source: UUID | None = None,
    sender: Annotated[str, Field(min_length=1, max_length=1_000)] | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
) -> dict[str, Any]:
    """Delete memories for good, with vectors, derived facts and source episodes, here and in other butlers.

    By ids, entity, source (the request id of a message), sender or time; several narrow it down.
    """
    require_trusted_input(ctx, "forget memories")
    what = ForgetRequest(tuple(ids or ()), entity_id, source, sender, since, until)
    gone = await forget(ctx.connection, source_of(ctx), what)
    memory_of(ctx).vectors.forget(gone.ids)
    await request_forgetting_elsewhere(ctx.connection, gone)
    return gone.shown()


@tool(callers=PEERS)
async def memory_forget_copies(
    ctx: CallContext,
    hashes: Annotated[list[Hash], Field(max_length=10_000)],
    requests: Annotated[list[UUID], Field(max_length=10_000)],
) -> dict[str, Any]:
    """Forget copies of what another butler has forgotten: the same texts, and the same messages."""
    counts: dict[str, int] = {}
    parts = [ForgetRequest(hashes=tuple(hashes))] if hashes else []
    parts += [ForgetRequest(request_id=request) for request in requests]
    for part in parts:
        gone = await forget(ctx.connection, source_of(ctx), part)
        memory_of(ctx).vectors.forget(gone.ids)
        for kind, count in gone.counts.items():
            counts[kind] = counts.get(kind, 0) + count
    return {"forgotten": {kind: count for kind, count in counts.items() if count}}


@tool(callers=OWNER_ONLY)
async def memory_run_consolidation(ctx: CallContext) -> dict[str, Any]:
    """Consolidate pending episodes now, in the background. Without any, no session is started."""
    return {"run": str(await request_consolidation(ctx.connection)), "status": "queued"}


@tool(callers=OWNER_ONLY, effect=Effect.LONG)
async def memory_run_episode_cleanup(ctx: CallContext) -> dict[str, Any]:
    """Delete expired episodes, expire faded facts and merge facts that say the same."""
    return await memory_of(ctx).clean_up(ctx.now)


@tool(callers=OWNER_ONLY, effect=Effect.READ)
async def memory_export(
    ctx: CallContext,
    kind: ExportKind,
    after: UUID | None = None,
    limit: Annotated[int, Field(ge=1, le=1_000)] = 500,
) -> dict[str, Any]:
    """Return items of a kind in the order of their ids. For the next page pass the last id as after."""
    return {"items": await export_page(ctx.connection, kind, after, limit)}


@tool(callers=OWNER_ONLY)
async def memory_import(
    ctx: CallContext,
    kind: ExportKind,
    items: Annotated[list[dict[str, Any]], Field(max_length=1_000)],
) -> dict[str, Any]:
    """Store exported items. Known, forgotten and worthless ones are skipped and counted."""
    try:
        return await import_items(ctx.connection, ctx.butler, kind, items)
    except ValidationError as error:
        reason = "; ".join(
            f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()[:3]
        )
        raise InvalidArguments(
            f"an item is not in the export's form: {reason}", hint="import what `export` wrote"
        ) from error


TOOLS = (
    memory_forget,
    memory_forget_copies,
    memory_run_consolidation,
    memory_run_episode_cleanup,
    memory_export,
    memory_import,
)
