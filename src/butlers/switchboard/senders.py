"""Senders nobody knows: their messages are held, and the owner is asked once who that is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from uuid import UUID, uuid5

from butlers.db.database import Connection
from butlers.domain.delivery import DeliveryRequest
from butlers.domain.errors import TooManyStrangers
from butlers.domain.request import BLOCKED, RequestContext
from butlers.switchboard import inbox
from butlers.switchboard.inbox import Held

KNOWN = "contact"  # the role of whoever the owner has let in
MOST_HELD = 10_000  # messages of all strangers together
LARGEST_HELD = 2**30  # bytes of them, files included
SHOWN = 200  # characters of an address
_ASKED = UUID("6d1e9d6e-4f0b-4f0a-9d0b-6a2f6f7b9d11")  # the name space of these questions
_FULL = UUID("2b6c1f0e-93a5-4c1c-8a1d-5d3f7c0a4e27")  # and of the word that there is no room
ORIGIN = "switchboard"

Post = Callable[[Connection, DeliveryRequest], Awaitable[UUID]]


def is_blocked(request: RequestContext) -> bool:
    return BLOCKED in request.sender_roles


async def hold(connection: Connection, request: RequestContext, post: Post) -> None:
    """Keep a message that is stored, and ask the owner once for each sender. Where there is no room left it
    is sent away: it stays with its connector, which comes again."""
    now = await check_room(connection, request)
    await _ask(connection, request, post)
    if _is_full(now):
        await _tell_it_is_full(connection, request, now, post)


async def check_room(connection: Connection, request: RequestContext) -> Held:
    """What is held, with this message if it is stored already."""
    before, now = await inbox.weigh_held(connection, request.request_id)
    if _is_full(before):
        raise TooManyStrangers(
            f"{before.messages:,} messages of strangers are held already",
            hint="the owner lets senders in or blocks them: `butlers contacts waiting`",
        )
    return now


def _is_full(held: Held) -> bool:
    return held.messages >= MOST_HELD or held.size >= LARGEST_HELD


async def _tell_it_is_full(
    connection: Connection, request: RequestContext, held: Held, post: Post
) -> None:
    """With the message that takes the last place: one that is sent away leaves nothing behind that could
    tell of it."""
    message = (
        f"{held.messages:,} messages of people I do not know are held, and there is no room for more."
        " Nothing is lost: from now on they stay where they come from until there is room. You and"
        " those you know are not kept waiting by them. `butlers contacts waiting` shows who it is; let"
        " them in, or block them."
    )
    notice = DeliveryRequest.to_owner(uuid5(_FULL, str(request.request_id)), ORIGIN, message)
    await post(connection, notice)


async def _ask(connection: Connection, request: RequestContext, post: Post) -> None:
    channel = request.source_channel
    sender = " ".join(request.source_sender_identity.split())[:SHOWN]
    message = (
        f"Somebody I do not know wrote on {channel}: {sender!r}. The message is held. Let them in with"
        f" `butlers contacts allow {channel} {sender!r}`, or not with `butlers contacts block …`."
    )
    # The same question is the same delivery, whoever of the sender's messages asks it.
    asked = uuid5(_ASKED, f"{channel}\n{request.source_sender_identity}")
    question = DeliveryRequest.to_owner(asked, ORIGIN, message)
    await post(connection, question)
