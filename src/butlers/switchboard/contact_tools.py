"""Who may write to us: contacts, and the strangers that wait to be let in."""

from __future__ import annotations

from typing import Any, Literal

from butlers.domain.caller import OWNER_ONLY
from butlers.domain.errors import InvalidArguments
from butlers.domain.message import BLOCKED, OWNER, check_storable
from butlers.switchboard import contacts, inbox
from butlers.switchboard.inbound import InboundService
from butlers.switchboard.inbox import MessageState
from butlers.switchboard.senders import KNOWN
from butlers.tools.declaration import Effect, tool
from butlers.tools.context import CallContext


@tool(callers=OWNER_ONLY, effect=Effect.READ)
async def contacts_list(ctx: CallContext) -> dict[str, Any]:
    """Everybody that is known, with their roles and the addresses they write from."""
    return {"contacts": await contacts.list_contacts(ctx.connection)}


@tool(callers=OWNER_ONLY, effect=Effect.READ)
async def contacts_waiting(ctx: CallContext) -> dict[str, Any]:
    """Senders nobody knows, whose messages are held until the owner decides."""
    return {"waiting": await inbox.list_held(ctx.connection)}


@tool(callers=OWNER_ONLY)
async def contacts_allow(
    ctx: CallContext,
    channel: str,
    identity: str,
    name: str | None = None,
    role: Literal["contact", "owner"] = "contact",
) -> dict[str, Any]:
    """Let a sender in; what was held of them is dealt with now. The role owner: it is an address of yours."""
    check_storable("the contact", [channel, identity, name or ""])
    identity = ctx.service(InboundService).intake.channels.normalize_address(channel, identity)
    await contacts.lock_sender(ctx.connection, channel, identity)
    await _not_the_owner(ctx, channel, identity)
    if role == OWNER:
        owner = await contacts.owner_id(ctx.connection)
        await contacts.add_address(ctx.connection, owner, channel, identity)
    else:
        await contacts.add_contact(ctx.connection, channel, identity, name or identity, (KNOWN,))
    held = await inbox.release_held(
        ctx.connection, channel, identity, MessageState.ACCEPTED, (role,)
    )
    for message in held:
        await ctx.service(InboundService).intake.admit(ctx.connection, message)
    return {"channel": channel, "identity": identity, "role": role, "released": len(held)}


@tool(callers=OWNER_ONLY)
async def contacts_block(ctx: CallContext, channel: str, identity: str) -> dict[str, Any]:
    """Never let a sender in: what they wrote and will write is kept, and nothing is done with it."""
    check_storable("the contact", [channel, identity])
    identity = ctx.service(InboundService).intake.channels.normalize_address(channel, identity)
    await contacts.lock_sender(ctx.connection, channel, identity)
    await _not_the_owner(ctx, channel, identity)
    await contacts.add_contact(ctx.connection, channel, identity, identity, (BLOCKED,))
    held = await inbox.release_held(
        ctx.connection, channel, identity, MessageState.SKIPPED, (BLOCKED,)
    )
    return {"channel": channel, "identity": identity, "role": BLOCKED, "skipped": len(held)}


async def _not_the_owner(ctx: CallContext, channel: str, identity: str) -> None:
    known = await contacts.find_contact(ctx.connection, channel, identity)
    if known is not None and OWNER in known.roles:
        raise InvalidArguments(
            f"{identity!r} on {channel} is you", hint="nobody locks themselves out"
        )


TOOLS = (contacts_list, contacts_waiting, contacts_allow, contacts_block)
