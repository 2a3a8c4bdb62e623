"""Senders: the contacts in the shared tables, and messages of unknown senders, held for the owner.

The owner is asked once per sender. Contacts have roles (owner, contact, blocked) and the addresses they
write from.
"""

from __future__ import annotations

import shlex
from hashlib import sha256
from typing import Any
from uuid import UUID, uuid5

from butlers.db.database import Connection, lock_until_commit
from butlers.domain.delivery import DeliveryRequest
from butlers.domain.errors import TooManyUnknownSenders
from butlers.domain.message import RequestContext, joined
from butlers.domain.queues import SWITCHBOARD
from butlers.domain.terminal import escape_line
from butlers.domain.triage import Contact
from butlers.queue.outbox import queue_delivery
from butlers.switchboard import inbox
from butlers.switchboard.inbox import HeldTotals

KNOWN = "contact"  # the role of a sender whom the owner has allowed
MAX_HELD = 10_000  # messages of all unknown senders together
MAX_HELD_BYTES = 2**30  # files included
ID_LENGTH = 12  # digits of a held sender's id
SHOWN = 200  # characters of an address in a question
_QUESTION_IDS = UUID("6d1e9d6e-4f0b-4f0a-9d0b-6a2f6f7b9d11")  # name space of delivery ids
_FULL_NOTICE_IDS = UUID("2b6c1f0e-93a5-4c1c-8a1d-5d3f7c0a4e27")


async def hold(connection: Connection, request: RequestContext) -> None:
    """Hold a stored message and ask the owner about its sender.

    Raises TooManyUnknownSenders without room for it: the message stays with its connector, which tries again.
    """
    held = await check_room(connection, request)
    await _ask_owner(connection, request)
    if _is_full(held):
        await _report_full(connection, request, held)


async def check_room(connection: Connection, request: RequestContext) -> HeldTotals:
    """Return the totals of held messages, including this one if it is stored already."""
    before, now = await inbox.measure_held(connection, request.request_id)
    if _is_full(before):
        raise TooManyUnknownSenders(
            f"{before.messages:,} messages of unknown senders are held already",
            hint="the owner allows or blocks senders: `butlers contacts waiting`",
        )
    return now


def _is_full(held: HeldTotals) -> bool:
    return held.messages >= MAX_HELD or held.size >= MAX_HELD_BYTES


async def _report_full(connection: Connection, request: RequestContext, held: HeldTotals) -> None:
    """Tell the owner when the last place is taken: a rejected message leaves no trace to report."""
    message = (
        f"{held.messages:,} messages of people I do not know are held, and there is no room for more."
        " Nothing is lost: from now on such messages stay at their source until there is room."
        " Messages from you and from people you know are not affected. `butlers contacts waiting`"
        " shows the senders; allow or block them."
    )
    notice_id = uuid5(_FULL_NOTICE_IDS, str(request.request_id))
    await queue_delivery(connection, DeliveryRequest.to_owner(notice_id, SWITCHBOARD, message))


async def _ask_owner(connection: Connection, request: RequestContext) -> None:
    channel = request.source_channel
    sender = " ".join(request.source_sender_identity.split())[:SHOWN].replace("`", "'")
    known_as = sender_id(channel, request.source_sender_identity)
    name = await known_name(connection, channel, request.source_sender_identity)
    who = f"{escape_line(name)} (in your contacts)" if name else "A sender I do not know"
    message = (
        f"{who} wrote on {escape_line(channel)}: {sender!r}. The message is held."
        f" Allow the sender with `butlers contacts allow {shlex.quote(known_as)}`,"
        f" or block with `butlers contacts block {shlex.quote(known_as)}`."
    )
    # One question per sender, because one id is one delivery.
    question_id = uuid5(_QUESTION_IDS, f"{channel}\n{request.source_sender_identity}")
    await queue_delivery(connection, DeliveryRequest.to_owner(question_id, SWITCHBOARD, message))


def sender_id(channel: str, identity: str) -> str:
    """Return the short id by which the owner refers to a held sender."""
    return sha256(joined(channel, identity).encode()).hexdigest()[:ID_LENGTH]


async def known_name(connection: Connection, channel: str, identity: str) -> str | None:
    """Return the name of the one person with this address, as published by the butler that keeps people.

    It tells the owner who writes. It permits nothing: the address may come from an address book.
    """
    rows = await connection.fetch(
        """
        SELECT DISTINCT name FROM shared.contact_info
        WHERE (type = $1 AND value = lower($2)) OR (type = 'chat' AND value = lower($1 || ':' || $2))
        LIMIT 2
        """,
        channel,
        identity,
    )
    return rows[0]["name"][:SHOWN] if len(rows) == 1 else None


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
    """Add a contact with this address, or give the contact that has the address these roles."""
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
    """Lock a sender until the transaction ends: no sender is allowed while a message is being held."""
    await lock_until_commit(connection, joined("sender", channel, identity))


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
