"""Senders nobody knows: their messages are held, and the owner is asked once who that is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from uuid import UUID, uuid5

from butlers.domain.delivery import DeliveryRequest, Intent
from butlers.domain.errors import QueueFull
from butlers.domain.message import Channel
from butlers.domain.request import BLOCKED, RequestContext
from butlers.store import inbox
from butlers.store.database import Connection

KNOWN = "contact"  # the role of whoever the owner has let in
MOST_HELD = 1_000
SHOWN = 200  # characters of an address
_ASKED = UUID("6d1e9d6e-4f0b-4f0a-9d0b-6a2f6f7b9d11")  # the name space of these questions
ORIGIN = "switchboard"

Post = Callable[[Connection, DeliveryRequest], Awaitable[UUID]]


def is_blocked(request: RequestContext) -> bool:
    return BLOCKED in request.sender_roles


async def hold(connection: Connection, request: RequestContext, post: Post) -> None:
    """Ask the owner, once for each sender; beyond what can be held, the next one has to come again."""
    if await inbox.count_held(connection) > MOST_HELD:
        raise QueueFull(
            f"{MOST_HELD:,} messages of strangers are held already",
            hint="`butlers contacts waiting` shows them to the owner",
        )
    channel = request.source_channel
    sender = " ".join(request.source_sender_identity.split())[:SHOWN]
    question = DeliveryRequest(
        # The same question is the same delivery, whoever of the sender's messages asks it.
        delivery_id=uuid5(_ASKED, f"{channel}\n{request.source_sender_identity}"),
        origin=ORIGIN,
        intent=Intent.SEND,
        channel=Channel.CONSOLE,
        target="console:owner",
        message=(
            f"Somebody I do not know wrote on {channel}: {sender!r}. The message is held. Let them in with"
            f" `butlers contacts allow {channel} {sender!r}`, or not with `butlers contacts block …`."
        ),
    )
    await post(connection, question)
