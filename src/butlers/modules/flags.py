"""Which modules the owner switched off: one key per module in the state table, so it outlives restarts."""

from __future__ import annotations

from collections.abc import Iterable

from butlers.db.database import Connection


def flag_key(module: str) -> str:
    return f"module:{module}:enabled"


async def load_flags(connection: Connection, modules: Iterable[str]) -> dict[str, bool]:
    """The flags that were ever set. What is neither true nor false counts as off: the safe side."""
    keys = {flag_key(module): module for module in modules}
    rows = await connection.fetch(
        "SELECT key, value FROM state WHERE key = ANY($1::text[])", list(keys)
    )
    return {keys[row["key"]]: row["value"] is True for row in rows}


async def save_flag(connection: Connection, module: str, enabled: bool) -> None:
    await connection.execute(
        """
        INSERT INTO state (key, value) VALUES ($1, $2)
        ON CONFLICT (key) DO UPDATE
        SET value = excluded.value, version = state.version + 1, updated_at = now()
        """,
        flag_key(module),
        enabled,
    )
