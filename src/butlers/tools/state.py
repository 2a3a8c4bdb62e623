"""The state store: small JSON values by key, each with a version, and the tools that read and write it."""

from __future__ import annotations

import json
import unicodedata
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

import asyncpg
from pydantic import Field

from butlers.db.database import Connection, Database, set_provenance
from butlers.domain.caller import SESSIONS
from butlers.domain.errors import InvalidArguments, StateConflict
from butlers.domain.provenance import DAEMON, Trust
from butlers.tools.context import CallContext
from butlers.tools.declaration import Effect, tool
from butlers.tools.records import shown_source

MAX_VALUE_BYTES = 1_000_000
RESERVED = "module:"  # for the daemon's module switches

Key = Annotated[str, Field(min_length=1, max_length=200)]
Version = Annotated[int, Field(ge=0)]


@tool(callers=SESSIONS, effect=Effect.READ)
async def state_get(ctx: CallContext, key: Key) -> dict[str, Any] | None:
    """The value of a key with its version, or null."""
    found = await get_entry(ctx.connection, _checked(key))
    return _shown(ctx, found) if found else None


@tool(callers=SESSIONS)
async def state_set(
    ctx: CallContext, key: Key, value: Any, expected_version: Version | None = None
) -> dict[str, Any]:
    """Store a JSON value under a key, only at its expected_version if given (0: none)."""
    if _is_reserved(key):
        raise InvalidArguments(f"keys that begin with {RESERVED!r} are reserved for the butler")
    size = len(json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass"))
    if size > MAX_VALUE_BYTES:
        raise InvalidArguments(
            f"the value has {size:,} bytes; at most {MAX_VALUE_BYTES:,} are allowed",
            hint="store the large part elsewhere and a reference here",
        )
    return {"version": await put_entry(ctx.connection, _checked(key), value, expected_version)}


@tool(callers=SESSIONS)
async def state_delete(
    ctx: CallContext, key: Key, expected_version: Version | None = None
) -> dict[str, Any]:
    """Delete the value of a key."""
    if _is_reserved(key):
        raise InvalidArguments(f"keys that begin with {RESERVED!r} are reserved for the butler")
    return {"deleted": await remove_entry(ctx.connection, _checked(key), expected_version)}


@tool(callers=SESSIONS, effect=Effect.READ)
async def state_list(
    ctx: CallContext,
    prefix: Annotated[str, Field(max_length=200)] = "",
    keys_only: bool = True,
    after: Annotated[str, Field(max_length=200)] = "",
    limit: Annotated[int, Field(ge=1, le=1000)] = 200,
) -> dict[str, Any]:
    """List keys in order. For the next page pass the last key as after."""
    found = await list_entries(ctx.connection, prefix, after, limit)
    if not keys_only:
        return {"entries": [_shown(ctx, entry) for entry in found]}
    keys = {"keys": [entry.key for entry in found]}
    # The key itself is text of its writer.
    marked = {entry.key: source for entry in found if (source := shown_source(ctx, entry.writer))}
    return (
        {**keys, "sources": {key: one["source"] for key, one in marked.items()}} if marked else keys
    )


def _shown(ctx: CallContext, entry: StateEntry) -> dict[str, Any]:
    return {
        "key": entry.key,
        "value": entry.value,
        "version": entry.version,
        "updated_at": entry.updated_at.isoformat(),
        **shown_source(ctx, entry.writer),
    }


def _is_reserved(key: str) -> bool:
    return key.startswith(RESERVED)


def _checked(key: str) -> str:
    for position, character in enumerate(key):
        if unicodedata.category(character) in ("Cc", "Cs"):
            raise InvalidArguments(
                f"the key has a control character at position {position}",
                hint="use printable characters",
            )
    return key


@dataclass(frozen=True, slots=True)
class StateEntry:
    key: str
    value: Any
    version: int
    updated_at: datetime
    sender: str | None = None
    trust: Trust = Trust.OWNER

    @classmethod
    def from_row(cls, row: asyncpg.Record) -> StateEntry:
        return cls(
            row["key"],
            row["value"],
            row["version"],
            row["updated_at"],
            row["sender"],
            Trust(row["trust"]),
        )

    @property
    def writer(self) -> dict[str, Any]:
        return {"sender": self.sender, "trust": self.trust}


@dataclass(frozen=True, slots=True)
class StateStore:
    """The state store for the butler itself, outside tool calls. Each operation is its own transaction."""

    database: Database

    async def get(self, key: str) -> StateEntry | None:
        async with self.database.transaction() as connection:
            return await get_entry(connection, key)

    async def put(self, key: str, value: Any, expected_version: int | None = None) -> int:
        async with self.database.transaction() as connection:
            await set_provenance(connection, DAEMON)
            return await put_entry(connection, key, value, expected_version)

    async def remove(self, key: str, expected_version: int | None = None) -> bool:
        async with self.database.transaction() as connection:
            return await remove_entry(connection, key, expected_version)


async def get_entry(connection: Connection, key: str) -> StateEntry | None:
    row = await connection.fetchrow("SELECT * FROM state WHERE key = $1", key)
    return StateEntry.from_row(row) if row else None


async def put_entry(
    connection: Connection, key: str, value: Any, expected_version: int | None = None
) -> int:
    """Set a value and return its version. Raises StateConflict if it has not the expected version.

    Version 0 means that the key must not exist.
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
    # As text, because a JSON null would become an SQL NULL.
    version: int | None = await connection.fetchval(statement, key, json.dumps(value))
    if version is None:
        raise await _conflict(connection, key, expected_version)
    return version


async def remove_entry(
    connection: Connection, key: str, expected_version: int | None = None
) -> bool:
    """Delete a value. Return whether there was one."""
    gone = await connection.fetchval(
        "DELETE FROM state WHERE key = $1 AND ($2::bigint IS NULL OR version = $2) RETURNING true",
        key,
        expected_version,
    )
    if not gone and expected_version is not None:
        raise await _conflict(connection, key, expected_version)
    return bool(gone)


async def list_entries(
    connection: Connection, prefix: str, after: str, limit: int
) -> list[StateEntry]:
    """Return the entries with this key prefix after the key ``after``, in key order."""
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
    found = await get_entry(connection, key)
    now = f"version {found.version}" if found else "missing"
    return StateConflict(
        f"{key!r} is {now}, not version {expected}",
        hint="read it again with state_get",
    )


TOOLS = (state_get, state_set, state_delete, state_list)
