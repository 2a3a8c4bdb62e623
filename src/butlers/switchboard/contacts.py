"""Tools for contacts: list them, and allow or block a sender whose messages are held."""

from __future__ import annotations

from typing import Any, Literal

from butlers.domain.caller import OWNER_ONLY
from butlers.domain.errors import InvalidArguments
from butlers.domain.message import BLOCKED, OWNER, check_storable
from butlers.switchboard import inbox, senders
from butlers.switchboard.inbox import MessageState
from butlers.switchboard.ingest import InboundService
from butlers.switchboard.lookalikes import Lookalikes
from butlers.tools.context import CallContext
from butlers.tools.declaration import Effect, tool


@tool(callers=OWNER_ONLY, effect=Effect.READ)
async def contacts_list(ctx: CallContext) -> dict[str, Any]:
    """All contacts with their roles and the addresses they write from."""
    return {"contacts": await senders.list_contacts(ctx.connection)}


@tool(callers=OWNER_ONLY, effect=Effect.READ)
async def contacts_waiting(ctx: CallContext) -> dict[str, Any]:
    """Unknown senders whose messages are held until the owner decides."""
    known = Lookalikes(await senders.list_contacts(ctx.connection))
    return {
        "waiting": [
            {
                "id": senders.sender_id(held["channel"], held["sender"]),
                **held,
                "name": await senders.known_name(ctx.connection, held["channel"], held["sender"]),
                "warning": known.describe(held["sender"]),
            }
            for held in await inbox.list_held(ctx.connection)
        ]
    }


@tool(callers=OWNER_ONLY)
async def contacts_allow(
    ctx: CallContext,
    channel: str,
    identity: str,
    name: str | None = None,
    role: Literal["contact", "owner"] = "contact",
) -> dict[str, Any]:
    """Allow a sender and handle the held messages. The role owner makes it an address of yours."""
    check_storable("the contact", [channel, identity, name or ""])
    intake = ctx.service(InboundService).intake
    identity = intake.channels.normalize_address(channel, identity)
    await senders.lock_sender(ctx.connection, channel, identity)
    await _reject_owner_address(ctx, channel, identity)
    if role == OWNER:
        owner = await senders.owner_id(ctx.connection)
        await senders.add_address(ctx.connection, owner, channel, identity)
    else:
        roles = (senders.KNOWN,)
        name = name or await senders.known_name(ctx.connection, channel, identity) or identity
        await senders.add_contact(ctx.connection, channel, identity, name, roles)
    held = await inbox.release_held(
        ctx.connection, channel, identity, MessageState.ACCEPTED, (role,)
    )
    for message in held:
        await intake.admit(ctx.connection, message)
    return {"channel": channel, "identity": identity, "role": role, "released": len(held)}


@tool(callers=OWNER_ONLY)
async def contacts_block(ctx: CallContext, channel: str, identity: str) -> dict[str, Any]:
    """Block a sender: messages from there are stored, and nothing is done with them."""
    check_storable("the contact", [channel, identity])
    identity = ctx.service(InboundService).intake.channels.normalize_address(channel, identity)
    await senders.lock_sender(ctx.connection, channel, identity)
    await _reject_owner_address(ctx, channel, identity)
    await senders.add_contact(ctx.connection, channel, identity, identity, (BLOCKED,))
    held = await inbox.release_held(
        ctx.connection, channel, identity, MessageState.SKIPPED, (BLOCKED,)
    )
    return {"channel": channel, "identity": identity, "role": BLOCKED, "skipped": len(held)}


async def _reject_owner_address(ctx: CallContext, channel: str, identity: str) -> None:
    known = await senders.find_contact(ctx.connection, channel, identity)
    if known is not None and OWNER in known.roles:
        raise InvalidArguments(
            f"{identity!r} on {channel} is your own address", hint="name another sender"
        )


TOOLS = (contacts_list, contacts_waiting, contacts_allow, contacts_block)
