"""The butler registry: which butlers there are, their addresses, and the messages they take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import asyncpg

from butlers.db.database import Connection
from butlers.domain.caller import OWNER_ONLY, PEERS
from butlers.domain.errors import NotAllowed, NotFound
from butlers.domain.message import CONTRACT
from butlers.domain.queues import DELIVERIES, INBOX
from butlers.domain.registration import Registration
from butlers.queue import leased_queue as queue
from butlers.queue.pause import lock_pause, read_pause
from butlers.switchboard import decisions
from butlers.tools.context import CallContext
from butlers.tools.declaration import Effect, tool
from butlers.wire.codec import encode


def candidates(registrations: Sequence[Registration]) -> list[Registration]:
    """Return the butlers that take messages and support our version of the route contract."""
    return [
        one
        for one in registrations
        if not one.infrastructure and one.contract_min <= CONTRACT <= one.contract_max
    ]


async def list_candidates(connection: Connection) -> list[str]:
    """Return the names of the butlers that take messages."""
    return [one.name for one in candidates(await list_registrations(connection))]


@tool(callers=PEERS)
async def register(
    ctx: CallContext, registration: Registration, back: bool = True
) -> dict[str, Any]:
    """Register a butler, or renew its registration. With back, send it what waited for it."""
    if registration.name != ctx.caller.name:
        raise NotAllowed(f"{ctx.caller.name} cannot register {registration.name}")
    # A butler that registers while a pause begins is not asked to pause; it learns of the pause here.
    await lock_pause(ctx.connection, shared=True)
    moved = await store_registration(ctx.connection, registration)
    for waiting in (INBOX, DELIVERIES) if back or moved else ():
        await queue.make_due(ctx.connection, waiting)
    paused = await read_pause(ctx.connection, ctx.clock.now())
    return {"status": "registered", "pause": encode(paused) if paused else None}


@tool(callers=OWNER_ONLY, effect=Effect.READ)
async def registry_list(ctx: CallContext) -> dict[str, Any]:
    """The registered butlers: active, stale (silent for one time to live) or quarantined (for two).

    A message for a butler that is away waits for it.
    """
    return {"butlers": await list_states(ctx.connection)}


@tool(callers=OWNER_ONLY)
async def registry_forget(ctx: CallContext, name: str) -> dict[str, Any]:
    """Remove a butler from the registry. Messages that wait only for it are decided again."""
    if not await delete_registration(ctx.connection, name):
        known = [one.name for one in await list_registrations(ctx.connection)]
        raise NotFound(f"no butler {name!r} has registered", hint=f"butlers: {', '.join(known)}")
    reopened = await decisions.reopen(ctx.connection, name)
    await queue.make_due(ctx.connection, INBOX)
    return {"butler": name, "reopened": reopened}


def _from_row(row: asyncpg.Record) -> Registration:
    return Registration(
        name=row["name"],
        url=row["url"],
        description=row["description"],
        infrastructure=row["infrastructure"],
        reflexes=tuple(row["reflexes"]),
        triggers=tuple(row["triggers"]),
        capabilities=tuple(row["capabilities"]),
        contract_min=row["contract_min"],
        contract_max=row["contract_max"],
        liveness_ttl_s=row["liveness_ttl_s"],
    )


async def store_registration(connection: Connection, registration: Registration) -> bool:
    """Insert or renew a registration. Return True if the butler is new or has another address."""
    moved = await connection.fetchval(
        """
        WITH before AS (SELECT url FROM butler_registry WHERE name = $1)
        INSERT INTO butler_registry (name, url, description, infrastructure, triggers,
                                     contract_min, contract_max, liveness_ttl_s, reflexes, capabilities)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
        ON CONFLICT (name) DO UPDATE
        SET url = excluded.url, description = excluded.description,
            infrastructure = excluded.infrastructure, triggers = excluded.triggers,
            contract_min = excluded.contract_min, contract_max = excluded.contract_max,
            liveness_ttl_s = excluded.liveness_ttl_s, reflexes = excluded.reflexes,
            capabilities = excluded.capabilities, last_seen_at = now()
        RETURNING (SELECT url FROM before) IS DISTINCT FROM url
        """,
        registration.name,
        registration.url,
        registration.description,
        registration.infrastructure,
        list(registration.triggers),
        registration.contract_min,
        registration.contract_max,
        registration.liveness_ttl_s,
        list(registration.reflexes),
        list(registration.capabilities),
    )
    return bool(moved)


async def delete_registration(connection: Connection, name: str) -> bool:
    """Remove a butler. One that still runs registers again."""
    gone = await connection.fetchval(
        "DELETE FROM butler_registry WHERE name = $1 RETURNING true", name
    )
    return bool(gone)


async def list_registrations(connection: Connection) -> list[Registration]:
    rows = await connection.fetch("SELECT * FROM butler_registry ORDER BY name")
    return [_from_row(row) for row in rows]


async def list_states(connection: Connection) -> list[dict[str, Any]]:
    """Return every butler with its last registration and the state that follows from it."""
    rows = await connection.fetch(
        """
        SELECT name, url, description, infrastructure, contract_min, contract_max, liveness_ttl_s,
               registered_at, last_seen_at, capabilities,
               jsonb_array_length(reflexes) + jsonb_array_length(triggers) AS triggers,
               CASE WHEN last_seen_at > now() - liveness_ttl_s * interval '1 second' THEN 'active'
                    WHEN last_seen_at > now() - 2 * liveness_ttl_s * interval '1 second' THEN 'stale'
                    ELSE 'quarantined' END AS state
        FROM butler_registry ORDER BY name
        """
    )
    return [dict(row) for row in rows]


async def find_registration(connection: Connection, name: str) -> Registration | None:
    row = await connection.fetchrow("SELECT * FROM butler_registry WHERE name = $1", name)
    return _from_row(row) if row else None


TOOLS = (register, registry_list, registry_forget)
