"""The Switchboard's registry: which butlers there are, where, and what they answer to."""

from __future__ import annotations

from typing import Any

import asyncpg

from butlers.db.database import Connection
from butlers.domain.registration import Registration


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


async def register(connection: Connection, registration: Registration) -> bool:
    """Make it known, or note that it is still there. True when it was not known under this address."""
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


async def forget(connection: Connection, name: str) -> bool:
    """A butler that is gone for good; one that still lives registers again."""
    gone = await connection.fetchval(
        "DELETE FROM butler_registry WHERE name = $1 RETURNING true", name
    )
    return bool(gone)


async def list_registrations(connection: Connection) -> list[Registration]:
    rows = await connection.fetch("SELECT * FROM butler_registry ORDER BY name")
    return [_from_row(row) for row in rows]


async def list_states(connection: Connection) -> list[dict[str, Any]]:
    """Every butler with how long ago it was heard of, and what that makes of it."""
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
