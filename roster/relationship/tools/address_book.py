"""People as the book into which address books are synchronized."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from uuid import UUID

from butlers.sdk import (
    SOURCE_PREFIX,
    Address,
    CallContext,
    CardChange,
    Connection,
    ContactBook,
    ContactCard,
    ContactWay,
    KnownPerson,
    comparable,
    uuid7,
)

from .lookup import find_person

Region = str | None
_MERGES = 20  # so many merges of one person are followed
_FROM_SOURCE = f"sender LIKE '{SOURCE_PREFIX}%'"  # rows that an address book wrote
_OWNED = (
    "aliases",
    "contact_ways",
    "person_dates",
    "person_notes",
    "interactions",
    "gifts",
    "loans",
    "group_members",
    "relations",
)


class PeopleBook(ContactBook):
    """The tables of the Relationship butler as a contact book."""

    async def find_by_address(
        self, connection: Connection, addresses: Collection[Address]
    ) -> dict[Address, set[UUID]]:
        await _use_indexes(connection)
        rows = await connection.fetch(
            """
            SELECT wanted.kind, wanted.address, found.person_id
            FROM unnest($1::text[], $2::text[]) AS wanted (kind, address)
            CROSS JOIN LATERAL (
                SELECT w.person_id FROM contact_ways AS w
                JOIN people AS p ON p.id = w.person_id AND p.merged_into IS NULL
                WHERE w.kind = wanted.kind AND w.address = wanted.address OFFSET 0
            ) AS found
            """,
            [kind for kind, _ in addresses],
            [value for _, value in addresses],
        )
        found: dict[Address, set[UUID]] = {}
        for row in rows:
            found.setdefault((row["kind"], row["address"]), set()).add(row["person_id"])
        return found

    async def find_by_name(
        self, connection: Connection, names: Collection[str]
    ) -> dict[str, set[UUID]]:
        await _use_indexes(connection)
        rows = await connection.fetch(
            """
            SELECT wanted.name, found.id FROM unnest($1::text[]) AS wanted (name)
            CROSS JOIN LATERAL (
                SELECT id FROM people WHERE lower(name) = wanted.name AND merged_into IS NULL
                UNION ALL SELECT p.id FROM aliases AS a
                JOIN people AS p ON p.id = a.person_id AND p.merged_into IS NULL
                WHERE lower(a.alias) = wanted.name OFFSET 0
            ) AS found
            """,
            list(names),
        )
        found: dict[str, set[UUID]] = {}
        for row in rows:
            found.setdefault(row["name"], set()).add(row["id"])
        return found

    async def add_people(
        self, connection: Connection, people: Mapping[UUID, ContactCard], region: Region
    ) -> None:
        await connection.execute(
            """
            INSERT INTO people (id, name, company, job)
            SELECT * FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[])
            """,
            list(people),
            [card.name for card in people.values()],
            [card.company for card in people.values()],
            [card.job for card in people.values()],
        )
        nothing = ContactCard(name="")
        changes = {key: CardChange(nothing, card) for key, card in people.items()}
        await _add_details(connection, changes, region)

    async def change_people(
        self, connection: Connection, changes: Mapping[UUID, CardChange], region: Region
    ) -> None:
        await _change_fields(connection, changes)
        await _remove_details(connection, changes)
        await _add_details(connection, changes, region)
        await _keep_names(connection, changes)

    async def remove_empty(self, connection: Connection, people: Collection[UUID]) -> int:
        known = " ".join(
            f"AND NOT EXISTS (SELECT FROM {table} AS t WHERE t.person_id = p.id)"
            for table in _OWNED
        )
        rows = await connection.fetch(
            f"""
            DELETE FROM people AS p WHERE id = ANY($1) AND p.{_FROM_SOURCE} {known}
              AND NOT EXISTS (SELECT FROM relations AS r WHERE r.other_id = p.id)
              AND NOT EXISTS (SELECT FROM person_merges AS m WHERE p.id IN (m.kept_id, m.merged_id))
            RETURNING id
            """,
            list(people),
        )
        return len(rows)

    async def current_ids(
        self, connection: Connection, people: Collection[UUID]
    ) -> dict[UUID, UUID]:
        rows = await connection.fetch(
            f"""
            WITH RECURSIVE merged AS (
                SELECT id AS first, id, merged_into, 0 AS step FROM people WHERE id = ANY($1)
                UNION ALL SELECT m.first, p.id, p.merged_into, m.step + 1
                FROM merged AS m JOIN people AS p ON p.id = m.merged_into WHERE m.step < {_MERGES}
            )
            SELECT first, id FROM merged WHERE merged_into IS NULL
            """,
            list(people),
        )
        return {row["first"]: row["id"] for row in rows}

    async def require_person(self, ctx: CallContext, text: str) -> KnownPerson:
        row = await find_person(ctx, text)
        return KnownPerson(row["id"], row["name"])

    async def ways_of(self, connection: Connection, person_id: UUID) -> Sequence[ContactWay]:
        rows = await connection.fetch(
            "SELECT kind, value, label FROM contact_ways WHERE person_id = $1 ORDER BY kind, id",
            person_id,
        )
        return [ContactWay(row["kind"], row["value"], row["label"]) for row in rows]


async def _use_indexes(connection: Connection) -> None:
    """Let lookups of this transaction use indexes.

    A plan that is made while a first synchronization has just begun would read the whole tables for ever:
    they are almost empty then, and the plan is kept.
    """
    await connection.execute("SET LOCAL enable_seqscan = off")


async def _change_fields(connection: Connection, changes: Mapping[UUID, CardChange]) -> None:
    """Set the fields that are empty or have the value that the source gave them."""
    await connection.executemany(
        """
        UPDATE people SET
            name = CASE WHEN name = $2 THEN $3 ELSE name END,
            company = CASE WHEN company IS NULL OR company = $4 THEN $5 ELSE company END,
            job = CASE WHEN job IS NULL OR job = $6 THEN $7 ELSE job END
        WHERE id = $1
        """,
        [
            (
                person_id,
                change.before.name,
                change.after.name,
                change.before.company,
                change.after.company,
                change.before.job,
                change.after.job,
            )
            for person_id, change in changes.items()
        ],
    )


async def _remove_details(connection: Connection, changes: Mapping[UUID, CardChange]) -> None:
    await connection.executemany(
        f"""
        DELETE FROM contact_ways
        WHERE person_id = $1 AND kind = $2 AND lower(value) = lower($3) AND {_FROM_SOURCE}
        """,
        [(key, way.kind, way.value) for key, one in changes.items() for way in one.lost_ways],
    )
    await connection.executemany(
        f"DELETE FROM person_dates WHERE person_id = $1 AND label = $2 AND {_FROM_SOURCE}",
        [(key, day.label) for key, one in changes.items() for day in one.lost_dates],
    )
    await connection.executemany(
        f"DELETE FROM aliases WHERE person_id = $1 AND alias = $2 AND {_FROM_SOURCE}",
        [(key, alias) for key, one in changes.items() for alias in one.lost_aliases],
    )


async def _add_details(
    connection: Connection, changes: Mapping[UUID, CardChange], region: Region
) -> None:
    ways = [
        (uuid7(), key, way.kind, way.value, way.label, comparable(way.kind, way.value, region))
        for key, one in changes.items()
        for way in one.new_ways
    ]
    await connection.execute(
        f"""
        INSERT INTO contact_ways (id, person_id, kind, value, label, address)
        SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::text[])
        ON CONFLICT (person_id, kind, lower(value)) DO UPDATE
        SET label = excluded.label WHERE contact_ways.{_FROM_SOURCE}
        """,
        *_columns(ways, 6),
    )
    dates = [
        (uuid7(), key, day.label, day.month, day.day, day.year)
        for key, one in changes.items()
        for day in one.new_dates
    ]
    await connection.execute(
        f"""
        INSERT INTO person_dates (id, person_id, label, month, day, year)
        SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::int[], $5::int[], $6::int[])
        ON CONFLICT (person_id, label) DO UPDATE
        SET month = excluded.month, day = excluded.day, year = excluded.year
        WHERE person_dates.{_FROM_SOURCE}
        """,
        *_columns(dates, 6),
    )
    aliases = [(uuid7(), key, alias) for key, one in changes.items() for alias in one.new_aliases]
    await _add_aliases(connection, aliases)


async def _keep_names(connection: Connection, changes: Mapping[UUID, CardChange]) -> None:
    """Keep the card's name as an alias where the person goes by another one."""
    rows = await connection.fetch("SELECT id, name FROM people WHERE id = ANY($1)", list(changes))
    named = [(row["id"], row["name"].casefold(), changes[row["id"]].after.name) for row in rows]
    await _add_aliases(
        connection,
        [(uuid7(), key, name) for key, known, name in named if name and name.casefold() != known],
    )


async def _add_aliases(connection: Connection, aliases: list[tuple[UUID, UUID, str]]) -> None:
    await connection.execute(
        """
        INSERT INTO aliases (id, person_id, alias)
        SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::text[])
        ON CONFLICT (person_id, lower(alias)) DO NOTHING
        """,
        *_columns(aliases, 3),
    )


def _columns(rows: Sequence[tuple[object, ...]], width: int) -> list[list[object]]:
    """Return the rows as one list per column, also if there is no row."""
    return [[row[place] for row in rows] for place in range(width)]
