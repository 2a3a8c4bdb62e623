"""Who is who, in the shared tables: contacts, their roles, and the addresses they write from."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from butlers.db.database import Connection
from butlers.domain.contact import Contact
from butlers.domain.request import joined


async def find_contact(connection: Connection, channel: str, identity: str) -> Contact | None:
    row = await connection.fetchrow(
        """
        SELECT id, name, roles FROM shared.contact_channels JOIN shared.contacts ON contact_id = id
        WHERE channel = $1 AND identity = $2
        """,
        channel,
        identity,
    )
    return Contact(row["id"], row["name"], tuple(row["roles"])) if row else None


async def add_contact(
    connection: Connection, channel: str, identity: str, name: str, roles: tuple[str, ...]
) -> Contact:
    """Make an address known, or give the one that it belongs to these roles."""
    known = await find_contact(connection, channel, identity)
    if known is not None:
        await connection.execute(
            "UPDATE shared.contacts SET roles = $2, name = $3 WHERE id = $1",
            known.contact_id,
            list(roles),
            name,
        )
        return Contact(known.contact_id, name, roles)
    contact_id: UUID = await connection.fetchval(
        "INSERT INTO shared.contacts (name, roles) VALUES ($1, $2) RETURNING id", name, list(roles)
    )
    await connection.execute(
        "INSERT INTO shared.contact_channels (channel, identity, contact_id) VALUES ($1, $2, $3)",
        channel,
        identity,
        contact_id,
    )
    return Contact(contact_id, name, roles)


async def add_address(
    connection: Connection, contact_id: UUID, channel: str, identity: str
) -> None:
    await connection.execute(
        """
        INSERT INTO shared.contact_channels (channel, identity, contact_id) VALUES ($1, $2, $3)
        ON CONFLICT (channel, identity) DO UPDATE SET contact_id = excluded.contact_id
        """,
        channel,
        identity,
        contact_id,
    )


async def remove_address(connection: Connection, channel: str, identity: str) -> None:
    await connection.execute(
        "DELETE FROM shared.contact_channels WHERE channel = $1 AND identity = $2",
        channel,
        identity,
    )


async def lock_sender(connection: Connection, channel: str, identity: str) -> None:
    """Until the transaction ends: nobody is let in while a message of theirs is being held."""
    await connection.execute(
        "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", joined("sender", channel, identity)
    )


async def owner_id(connection: Connection) -> UUID:
    found: UUID = await connection.fetchval(
        "SELECT id FROM shared.contacts WHERE 'owner' = ANY(roles) ORDER BY created_at LIMIT 1"
    )
    return found


async def list_contacts(connection: Connection) -> list[dict[str, Any]]:
    rows = await connection.fetch(
        """
        SELECT name, roles, channel, identity, created_at
        FROM shared.contact_channels JOIN shared.contacts ON contact_id = id
        ORDER BY name, channel, identity
        """
    )
    return [dict(row) for row in rows]
