"""Tools of the contacts module: look a person up, write to one, and synchronize address books."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import Field

from butlers.db.database import set_provenance
from butlers.domain.caller import SESSIONS
from butlers.domain.clock import uuid7
from butlers.domain.delivery import DeliveryRequest, Intent
from butlers.domain.errors import InvalidArguments, NotFound
from butlers.domain.provenance import Provenance, Trust
from butlers.modules.contacts import accounts, links
from butlers.modules.contacts.book import SOURCE_PREFIX, ContactBook
from butlers.modules.contacts.card import ContactWay
from butlers.modules.contacts.config import ContactsConfig
from butlers.modules.contacts.sync import ContactSync, SyncOwner
from butlers.modules.contacts.worker import request_sync
from butlers.queue.outbox import queue_delivery
from butlers.tools.context import CallContext, require_trusted_input
from butlers.tools.declaration import Effect, tool

MAX_WAITING = 50
PersonName = Annotated[
    str, Field(min_length=1, max_length=100, description='name, alias or "my sister"')
]
WayName = Literal["phone", "email", "address", "chat", "website"]
_WAY_WORDS = {
    "phone": "phone number",
    "email": "email address",
    "address": "postal address",
    "chat": "chat address",
    "website": "website",
}


@tool(callers=SESSIONS, effect=Effect.READ, shared=True)
async def contacts_find(
    ctx: CallContext, person: PersonName, kind: WayName | None = None
) -> dict[str, Any]:
    """Tell how to reach a person, or only the phone number, email and so on."""
    book = _book(ctx)
    found = await book.require_person(ctx, person)
    ways = await book.ways_of(ctx.connection, found.person_id)
    chosen = [way for way in ways if kind in (None, way.kind)]
    shown = [{"kind": way.kind, "value": way.value, "label": way.label} for way in chosen]
    return {
        "person_id": str(found.person_id),
        "name": found.name,
        "ways": shown,
        "text": _ways_text(found.name, chosen, kind),
    }


def _ways_text(name: str, ways: Sequence[ContactWay], kind: WayName | None) -> str:
    if not ways:
        return f"I have no {_WAY_WORDS[kind] if kind else 'address or number'} of {name}."
    values = [f"{way.value} ({way.label})" if way.label else way.value for way in ways]
    if kind:
        return f"{name}: {', '.join(values)}"
    lines = [f"{way.kind}: {value}" for way, value in zip(ways, values, strict=True)]
    return "\n".join([name, *lines])


@tool(callers=SESSIONS)
async def contacts_write(
    ctx: CallContext,
    person: PersonName,
    message: Annotated[str, Field(min_length=1, max_length=4000)],
    channel: Literal["email", "telegram"] | None = None,
    subject: Annotated[str, Field(max_length=200)] | None = None,
) -> dict[str, Any]:
    """Write to a person. A new recipient waits for the owner's approval."""
    require_trusted_input(ctx, "write to a contact")
    book = _book(ctx)
    found = await book.require_person(ctx, person)
    ways = await book.ways_of(ctx.connection, found.person_id)
    recipient = _recipient(ways, ContactsConfig.of(ctx).mailbox, channel)
    if recipient is None:
        raise NotFound(
            f"I have no {channel or 'email or Telegram'} address of {found.name}",
            hint=f'say, for example, "{found.name}\'s email is …"',
        )
    delivery = DeliveryRequest(
        delivery_id=uuid7(),
        origin=ctx.butler,
        intent=Intent.SEND,
        channel=recipient[0],
        target=recipient[1],
        message=message,
        request_id=ctx.key.request_id if ctx.key else None,
        ordinal=ctx.key.ordinal if ctx.key else 0,
        subject=subject if recipient[0] == "email" else None,
    )
    await queue_delivery(ctx.connection, delivery)
    to = recipient[1].rpartition(":")[2]
    text = f"Handed over to {found.name} ({to}). A new recipient waits for your approval."
    return {"delivery_id": str(delivery.delivery_id), "name": found.name, "text": text}


def _recipient(
    ways: Sequence[ContactWay], mailbox: str, channel: str | None
) -> tuple[str, str] | None:
    """Return the channel and the target of the first way that the Messenger can use."""
    for way in ways:
        service, _, account = way.value.partition(":")
        if way.kind == "chat" and service == "telegram" and account and channel != "email":
            return "telegram", account
        if way.kind == "email" and channel != "telegram":
            return "email", f"{mailbox}:{way.value}"
    return None


@tool(callers=SESSIONS)
async def contacts_sync_now(
    ctx: CallContext, account: str | None = None, may_remove: bool = False
) -> dict[str, Any]:
    """Synchronize one address book now, or all of them. may_remove: also if most contacts are gone."""
    if may_remove:
        require_trusted_input(ctx, "remove many contacts")
    found = [
        one
        for one in await accounts.list_accounts(ctx.connection)
        if one["disconnected_at"] is None and account in (None, one["name"])
    ]
    if not found:
        raise NotFound(
            f"there is no address book {account!r}" if account else "no address book is connected",
            hint="`butlers connect carddav` or `butlers connect google` connects one",
        )
    for one in found:
        await request_sync(ctx.connection, one["kind"], one["name"], may_remove=may_remove)
    names = [f"{one['kind']} {one['name']}" for one in found]
    return {"accounts": names, "text": f"Synchronizing: {', '.join(names)}."}


@tool(callers=SESSIONS, effect=Effect.READ)
async def contacts_sync_status(ctx: CallContext) -> dict[str, Any]:
    """Tell when each address book was synchronized, what changed, and which one fails."""
    found = await accounts.list_accounts(ctx.connection)
    shown = [
        {
            key: value.isoformat() if hasattr(value, "isoformat") else value
            for key, value in one.items()
        }
        for one in found
    ]
    lines = [_status_line(ctx, one) for one in found]
    return {"accounts": shown, "text": "\n".join(lines) or "No address book is connected."}


def _status_line(ctx: CallContext, account: dict[str, Any]) -> str:
    name = f"{account['kind']} {account['name']}"
    if account["disconnected_at"]:
        return f"{name}: disconnected, {account['contacts']} contacts kept"
    when = account["synced_at"]
    at = f"{when.astimezone(ctx.zone):%Y-%m-%d %H:%M}" if when else "not synchronized yet"
    waits = f", {account['to_confirm']} to confirm" if account["to_confirm"] else ""
    failed = f"; it fails: {account['error']}" if account["error"] else ""
    return f"{name}: {account['contacts']} contacts, {at}{waits}{failed}"


@tool(callers=SESSIONS, effect=Effect.READ)
async def contacts_source_list(ctx: CallContext) -> dict[str, Any]:
    """List the connected address books and the contacts that wait for a confirmation."""
    waiting = []
    for link, label in await links.waiting_links(ctx.connection, MAX_WAITING):
        ways = [way.value for way in link.card.ways[:3]]
        waiting.append(
            {
                "contact_id": str(link.link_id),
                "name": link.card.name,
                "account": label,
                "ways": ways,
            }
        )
    lines = [
        f"{one['name']} in {one['account']} ({', '.join(one['ways']) or 'no address'}):"
        " the person I know?"
        for one in waiting
    ]
    found = [f"{one['kind']} {one['name']}" for one in await accounts.list_accounts(ctx.connection)]
    text = "\n".join(lines) or "No contact waits for a confirmation."
    return {"accounts": found, "waiting": waiting, "text": text}


@tool(callers=SESSIONS)
async def contacts_source_reconcile(
    ctx: CallContext, same: bool, contact_id: UUID | None = None, name: str | None = None
) -> dict[str, Any]:
    """Decide whether a contact with a known name is that person (same = true) or somebody else.

    Without contact_id and name it decides about all contacts that wait.
    """
    require_trusted_input(ctx, "match contacts with people")
    waiting = await links.waiting_links(ctx.connection, MAX_WAITING)
    wanted = name.strip().casefold() if name else None
    chosen = [
        (link, label)
        for link, label in waiting
        if contact_id in (None, link.link_id) and wanted in (None, link.card.name.casefold())
    ]
    if not chosen:
        raise NotFound("no such contact waits for a confirmation", hint="contacts_source_list")
    sync = _sync(ctx)
    for link, label in chosen:
        source = Provenance(Trust.OWNER, f"{SOURCE_PREFIX}{label}", ctx.caller.request_id)
        await set_provenance(ctx.connection, source)
        locked = await links.require_waiting(ctx.connection, link.link_id)
        await sync.confirm(ctx.connection, locked, same=same)
    names = ", ".join(sorted({link.card.name for link, _ in chosen}))
    said = "the same person" if same else "another person"
    return {"decided": len(chosen), "text": f"{names}: {said}."}


def _book(ctx: CallContext) -> ContactBook:
    try:
        return ctx.services.modules.instance(ContactBook)  # type: ignore[type-abstract]
    except NotFound:
        raise InvalidArguments(
            f"{ctx.butler} keeps no people", hint="enable the contacts module of relationship"
        ) from None


def _sync(ctx: CallContext) -> ContactSync:
    return ctx.services.modules.instance(SyncOwner).sync  # type: ignore[type-abstract]


TOOLS = (
    contacts_find,
    contacts_write,
    contacts_sync_now,
    contacts_sync_status,
    contacts_source_list,
    contacts_source_reconcile,
)
