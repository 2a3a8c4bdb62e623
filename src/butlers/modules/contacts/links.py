"""Table contacts_source_links: which card of which address book is which person, and what it said last."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import asyncpg

from butlers.db.database import Connection
from butlers.domain.clock import uuid7
from butlers.domain.errors import NotFound
from butlers.modules.contacts.card import ContactCard


@dataclass(frozen=True, slots=True)
class SourceLink:
    """A card of an address book. A link with a candidate waits until the owner confirms the person."""

    link_id: UUID
    account_id: UUID
    external_id: str
    person_id: UUID | None
    candidate_id: UUID | None
    etag: str | None
    card: ContactCard

    @classmethod
    def from_row(cls, row: asyncpg.Record) -> SourceLink:
        return cls(
            row["id"],
            row["account_id"],
            row["external_id"],
            row["person_id"],
            row["candidate_id"],
            row["etag"],
            ContactCard.from_fields(row["fields"]),
        )


async def read_links(
    connection: Connection, account_id: UUID, external_ids: Collection[str]
) -> dict[str, SourceLink]:
    rows = await connection.fetch(
        "SELECT * FROM contacts_source_links WHERE account_id = $1 AND external_id = ANY($2)",
        account_id,
        list(external_ids),
    )
    return {row["external_id"]: SourceLink.from_row(row) for row in rows}


async def read_etags(connection: Connection, account_id: UUID) -> dict[str, str | None]:
    """Return the ETag of every known card of an address book."""
    rows = await connection.fetch(
        "SELECT external_id, etag FROM contacts_source_links WHERE account_id = $1", account_id
    )
    return {row["external_id"]: row["etag"] for row in rows}


async def linked_people(
    connection: Connection, account_id: UUID, people: Collection[UUID]
) -> set[UUID]:
    """Return those of the people that are cards of this address book already."""
    rows = await connection.fetch(
        "SELECT person_id FROM contacts_source_links WHERE account_id = $1 AND person_id = ANY($2)",
        account_id,
        list(people),
    )
    return {row["person_id"] for row in rows}


async def other_cards(
    connection: Connection, account_id: UUID, people: Collection[UUID]
) -> dict[UUID, list[ContactCard]]:
    """Return what other address books say about people."""
    rows = await connection.fetch(
        """
        SELECT person_id, fields FROM contacts_source_links
        WHERE account_id <> $1 AND person_id = ANY($2)
        """,
        account_id,
        list(people),
    )
    found: dict[UUID, list[ContactCard]] = {}
    for row in rows:
        found.setdefault(row["person_id"], []).append(ContactCard.from_fields(row["fields"]))
    return found


async def save_links(connection: Connection, links: Sequence[SourceLink]) -> None:
    await connection.execute(
        """
        INSERT INTO contacts_source_links
            (id, account_id, external_id, person_id, candidate_id, etag, fields)
        SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::uuid[], $5::uuid[], $6::text[],
                             $7::jsonb[])
        ON CONFLICT (account_id, external_id) DO UPDATE
        SET person_id = excluded.person_id, candidate_id = excluded.candidate_id,
            etag = excluded.etag, fields = excluded.fields
        """,
        [link.link_id for link in links],
        [link.account_id for link in links],
        [link.external_id for link in links],
        [link.person_id for link in links],
        [link.candidate_id for link in links],
        [link.etag for link in links],
        [link.card.fields() for link in links],
    )


async def delete_links(connection: Connection, links: Collection[SourceLink]) -> None:
    await connection.execute(
        "DELETE FROM contacts_source_links WHERE id = ANY($1)", [link.link_id for link in links]
    )


async def waiting_links(connection: Connection, limit: int) -> list[tuple[SourceLink, str]]:
    """Return the cards that wait for a confirmation, with the labels of their address books."""
    rows = await connection.fetch(
        """
        SELECT l.*, a.kind || ' ' || a.name AS label FROM contacts_source_links AS l
        JOIN contacts_source_accounts AS a ON a.id = l.account_id
        WHERE l.candidate_id IS NOT NULL ORDER BY l.id LIMIT $1
        """,
        limit,
    )
    return [(SourceLink.from_row(row), row["label"]) for row in rows]


async def require_waiting(connection: Connection, link_id: UUID) -> SourceLink:
    row: Any = await connection.fetchrow(
        "SELECT * FROM contacts_source_links WHERE id = $1 AND candidate_id IS NOT NULL FOR UPDATE",
        link_id,
    )
    if row is None:
        raise NotFound(f"no contact {link_id} waits for a confirmation")
    return SourceLink.from_row(row)


def new_link(account_id: UUID, external_id: str, etag: str | None, card: ContactCard) -> SourceLink:
    return SourceLink(uuid7(), account_id, external_id, None, None, etag, card)
