"""The state store: small JSON values by key, each with a version that rises with every change."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import asyncpg

from butlers.db.database import Connection, Database
from butlers.domain.errors import StateConflict


@dataclass(frozen=True, slots=True)
class StateEntry:
    key: str
    value: Any
    version: int
    updated_at: datetime

    @classmethod
    def from_row(cls, row: asyncpg.Record) -> StateEntry:
        return cls(row["key"], row["value"], row["version"], row["updated_at"])


@dataclass(frozen=True, slots=True)
class StateStore:
    """The store for whoever is in no call of a tool: each step is a transaction of its own."""

    database: Database

    async def get(self, key: str) -> StateEntry | None:
        async with self.database.transaction() as connection:
            return await get(connection, key)

    async def put(self, key: str, value: Any, expected_version: int | None = None) -> int:
        async with self.database.transaction() as connection:
            return await put(connection, key, value, expected_version)

    async def remove(self, key: str, expected_version: int | None = None) -> bool:
        async with self.database.transaction() as connection:
            return await remove(connection, key, expected_version)


async def get(connection: Connection, key: str) -> StateEntry | None:
    row = await connection.fetchrow("SELECT * FROM state WHERE key = $1", key)
    return StateEntry.from_row(row) if row else None


async def put(
    connection: Connection, key: str, value: Any, expected_version: int | None = None
) -> int:
    """Set a value; returns its version. With ``expected_version`` only if nobody changed it meanwhile.

    Version 0 stands for "not there": it sets a value only where there is none.
    """
    if expected_version is None:
        statement = """
            INSERT INTO state (key, value) VALUES ($1, $2::text::jsonb)
            ON CONFLICT (key) DO UPDATE
            SET value = excluded.value, version = state.version + 1, updated_at = now()
            RETURNING version
            """
    elif expected_version == 0:
        statement = """
            INSERT INTO state (key, value) VALUES ($1, $2::text::jsonb)
            ON CONFLICT (key) DO NOTHING RETURNING version
            """
    else:
        statement = f"""
            UPDATE state SET value = $2::text::jsonb, version = version + 1, updated_at = now()
            WHERE key = $1 AND version = {int(expected_version)} RETURNING version
            """
    # As text, because a JSON null would otherwise travel as no value at all.
    version: int | None = await connection.fetchval(statement, key, json.dumps(value))
    if version is None:
        raise await _conflict(connection, key, expected_version)
    return version


async def remove(connection: Connection, key: str, expected_version: int | None = None) -> bool:
    """Delete a value; true when there was one."""
    gone = await connection.fetchval(
        "DELETE FROM state WHERE key = $1 AND ($2::bigint IS NULL OR version = $2) RETURNING true",
        key,
        expected_version,
    )
    if not gone and expected_version is not None:
        raise await _conflict(connection, key, expected_version)
    return bool(gone)


async def entries(connection: Connection, prefix: str, after: str, limit: int) -> list[StateEntry]:
    """Entries whose key begins with ``prefix``, in key order, after a key: the next page."""
    rows = await connection.fetch(
        """
        SELECT * FROM state WHERE starts_with(key, $1) AND key > $2
        ORDER BY key LIMIT $3
        """,
        prefix,
        after,
        limit,
    )
    return [StateEntry.from_row(row) for row in rows]


async def _conflict(connection: Connection, key: str, expected: int | None) -> StateConflict:
    found = await get(connection, key)
    now = f"version {found.version}" if found else "not there"
    return StateConflict(
        f"{key!r} is {now}, not version {expected}",
        hint="read it again with state_get and decide anew",
    )
