"""Tables contacts_source_accounts and contacts_sync_state: address books and the state of their sync."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from butlers.db.database import Connection
from butlers.domain.clock import uuid7


@dataclass(frozen=True, slots=True)
class SourceAccount:
    """An address book, with the place up to which its changes are known."""

    account_id: UUID
    kind: str
    name: str
    cursor: str | None
    full_at: datetime | None
    told_at: datetime | None  # when the owner was told that it fails

    @property
    def label(self) -> str:
        return f"{self.kind} {self.name}"


async def keep_accounts(connection: Connection, configured: Iterable[tuple[str, str]]) -> None:
    """Make the stored accounts those of the configuration. Others are kept, marked as disconnected."""
    wanted = list(configured)
    for kind, name in wanted:
        account_id = await connection.fetchval(
            """
            INSERT INTO contacts_source_accounts (id, kind, name) VALUES ($1, $2, $3)
            ON CONFLICT (kind, name) DO UPDATE SET disconnected_at = NULL RETURNING id
            """,
            uuid7(),
            kind,
            name,
        )
        await connection.execute(
            "INSERT INTO contacts_sync_state (account_id) VALUES ($1) ON CONFLICT DO NOTHING",
            account_id,
        )
    await connection.execute(
        """
        UPDATE contacts_source_accounts SET disconnected_at = now()
        WHERE disconnected_at IS NULL
          AND (kind, name) NOT IN (SELECT * FROM unnest($1::text[], $2::text[]))
        """,
        [kind for kind, _ in wanted],
        [name for _, name in wanted],
    )


async def find_account(connection: Connection, kind: str, name: str) -> SourceAccount | None:
    row = await connection.fetchrow(
        """
        SELECT a.id, a.kind, a.name, s.cursor, s.full_at, s.told_at
        FROM contacts_source_accounts AS a JOIN contacts_sync_state AS s ON s.account_id = a.id
        WHERE a.kind = $1 AND a.name = $2 AND a.disconnected_at IS NULL
        """,
        kind,
        name,
    )
    return SourceAccount(*row.values()) if row else None


async def list_accounts(connection: Connection) -> list[dict[str, Any]]:
    rows = await connection.fetch(
        """
        SELECT a.kind, a.name, a.disconnected_at, s.synced_at, s.full_at, s.error, s.counts,
               count(l.id) AS contacts, count(l.candidate_id) AS to_confirm
        FROM contacts_source_accounts AS a JOIN contacts_sync_state AS s ON s.account_id = a.id
        LEFT JOIN contacts_source_links AS l ON l.account_id = a.id
        GROUP BY a.id, s.account_id ORDER BY a.kind, a.name
        """
    )
    return [dict(row) for row in rows]


async def keep_result(
    connection: Connection,
    account_id: UUID,
    now: datetime,
    cursor: str | None,
    counts: dict[str, int],
    *,
    full: bool,
) -> None:
    """Store that a synchronization ended well, and where the next one begins."""
    await connection.execute(
        """
        UPDATE contacts_sync_state SET cursor = $2, synced_at = $3, error = NULL, told_at = NULL,
            counts = $4, full_at = CASE WHEN $5 THEN $3 ELSE full_at END
        WHERE account_id = $1
        """,
        account_id,
        cursor,
        now,
        counts,
        full,
    )


async def keep_error(
    connection: Connection, account_id: UUID, error: str, told_at: datetime | None
) -> None:
    await connection.execute(
        """
        UPDATE contacts_sync_state SET error = $2, told_at = coalesce(told_at, $3)
        WHERE account_id = $1
        """,
        account_id,
        error,
        told_at,
    )
