"""Senders nobody knows: their messages are held, and the owner is asked once who that is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from uuid import UUID, uuid5

from butlers.domain.delivery import DeliveryRequest, Intent
from butlers.domain.message import Channel
from butlers.domain.request import BLOCKED, RequestContext
from butlers.store import inbox
from butlers.store.database import Connection

KNOWN = "contact"  # the role of whoever the owner has let in
MOST_HELD = 1_000  # messages of all strangers together
MOST_OF_ONE = 100
SHOWN = 200  # characters of an address
_ASKED = UUID("6d1e9d6e-4f0b-4f0a-9d0b-6a2f6f7b9d11")  # the name space of these questions
ORIGIN = "switchboard"

Post = Callable[[Connection, DeliveryRequest], Awaitable[UUID]]


def is_blocked(request: RequestContext) -> bool:
    return BLOCKED in request.sender_roles


async def are_too_many(connection: Connection, request: RequestContext) -> bool:
    """Whether so much is held that of one more only the fact is kept: it must not fill the disk, nor keep
    its connector from what comes behind it."""
    held = await inbox.count_held(
        connection, request.source_channel, request.source_sender_identity
    )
    return held.of_all >= MOST_HELD or held.of_sender >= MOST_OF_ONE


async def hold(connection: Connection, request: RequestContext, post: Post) -> None:
    """Ask the owner, once for each sender."""
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
