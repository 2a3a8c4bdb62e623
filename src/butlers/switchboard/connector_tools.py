"""Connectors: what they say of themselves, how far they have come, and how they are."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from butlers.db.database import Connection
from butlers.domain.caller import OWNER_ONLY
from butlers.domain.errors import StateConflict
from butlers.domain.message import check_storable
from butlers.domain.registration import ConnectorState, Heartbeat
from butlers.switchboard import connector_store as connectors
from butlers.switchboard.connector_health import HEARTBEAT_S, condition
from butlers.switchboard.inbound import InboundService
from butlers.switchboard.ingest_stats import Counts, IngestStats, Seen
from butlers.tools.declaration import Effect, tool
from butlers.tools.context import CallContext

UNKNOWN = "unknown"


@tool(callers=OWNER_ONLY)
async def connector_heartbeat(ctx: CallContext, heartbeat: Heartbeat) -> dict[str, Any]:
    """Report that a connector is alive, and its counters. The first heartbeat registers it."""
    await record_heartbeat(ctx.connection, ctx.service(InboundService).stats, heartbeat)
    return {"status": "noted", "again_in_s": HEARTBEAT_S}


async def record_heartbeat(
    connection: Connection, stats: IngestStats, heartbeat: Heartbeat
) -> None:
    texts = [
        heartbeat.kind,
        heartbeat.endpoint_identity,
        heartbeat.error or "",
        heartbeat.version or "",
    ]
    check_storable("the heartbeat", texts)
    failed = await connectors.keep_heartbeat(connection, heartbeat)
    if failed:
        why = heartbeat.error or "by its own count"
        stats.count(heartbeat.endpoint_identity, Seen.FAILED, why, failed)


@tool(callers=OWNER_ONLY, effect=Effect.READ)
async def connector_checkpoint(ctx: CallContext, kind: str, endpoint: str) -> dict[str, Any]:
    """How far a connector has come in its source, as it last said; null at the first time."""
    found = await connectors.read_checkpoint(ctx.connection, kind, endpoint)
    return {
        "cursor": found.cursor if found else None,
        "saved_at": found.saved_at if found else None,
    }


@tool(callers=OWNER_ONLY)
async def connector_advance(
    ctx: CallContext, kind: str, endpoint: str, instance_id: UUID, cursor: dict[str, Any]
) -> dict[str, Any]:
    """Move a connector's checkpoint. Everything before it must have been accepted."""
    await advance_checkpoint(ctx.connection, kind, endpoint, instance_id, cursor)
    return {"status": "moved"}


async def advance_checkpoint(
    connection: Connection, kind: str, endpoint: str, instance_id: UUID, cursor: dict[str, Any]
) -> None:
    """Raises StateConflict if another instance has taken over."""
    if not await connectors.move_checkpoint(connection, kind, endpoint, instance_id, cursor):
        raise StateConflict(
            f"another instance of the {kind} connector for {endpoint} is at work",
            hint="end one of the two; a connector begins with a heartbeat",
        )


@tool(callers=OWNER_ONLY, effect=Effect.READ)
async def connectors_list(ctx: CallContext) -> dict[str, Any]:
    """Every connector, how it is and why: by its heartbeat, and by what the door saw of it."""
    found = await connectors.list_connectors(ctx.connection)
    known = {one["endpoint"] for one in found}
    unknown = (name for name in ctx.service(InboundService).stats.endpoints() if name not in known)
    listed = [
        *(_with_condition(ctx, one) for one in found),
        *(_unknown(ctx, one) for one in unknown),
    ]
    return {"connectors": [one for one in listed if one]}


def _unknown(ctx: CallContext, endpoint: str) -> dict[str, Any] | None:
    """One that never said that it is there, and is refused all the same."""
    seen = ctx.service(InboundService).stats.counts(endpoint)
    health, why = condition(ConnectorState.HEALTHY, None, 0.0, seen)
    if health == "healthy":
        return None
    nothing = dict.fromkeys(("instance_id", "heartbeat_at", "counters", "cursor"))
    return {
        "kind": UNKNOWN,
        "endpoint": endpoint,
        **nothing,
        "health": health,
        "why": why,
        "last_minute": _last_minute(seen),
    }


def _with_condition(ctx: CallContext, row: dict[str, Any]) -> dict[str, Any]:
    seen = ctx.service(InboundService).stats.counts(row["endpoint"])
    health, why = condition(row["state"], row["error"], row["silent_s"], seen)
    return {
        **row,
        "health": health,
        "why": why,
        "last_minute": _last_minute(seen),
    }


def _last_minute(seen: Counts) -> dict[str, int]:
    return {str(kind): getattr(seen, kind) for kind in Seen}


TOOLS = (connector_heartbeat, connector_checkpoint, connector_advance, connectors_list)
