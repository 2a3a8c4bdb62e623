"""The interface of a channel: a way in which messages come in, go out, or both.

A channel is one folder with a file ``channel.py`` that defines ``CHANNEL``, an instance of a subclass of
``Channel``. ``channels/registry.py`` finds it; nothing else has to know its name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol
from uuid import UUID

from starlette.requests import Request

from butlers.config.values import ConfigTable
from butlers.db.database import Database
from butlers.domain.clock import Clock
from butlers.domain.delivery import DeliveryReceipt, DeliveryRequest, DeliveryState
from butlers.domain.errors import MessageTooLarge
from butlers.domain.message import InboundEnvelope, PolicyTier
from butlers.domain.registration import Heartbeat
from butlers.tools.declaration import ToolFunction

MAX_BODY_BYTES = 40 * 2**20

# Returns the value of a secret by its name. Raises CredentialMissing.
ReadSecret = Callable[[str], Awaitable[str]]
# Answers a POST: the JSON of a 202 response. A ButlersError becomes an error response.
RequestHandler = Callable[[Request], Awaitable[dict[str, Any]]]


class ChannelSender(Protocol):
    """Sends deliveries over one channel.

    The type of an error tells the Messenger what happened: ``DeliveryRefused`` (the platform will never
    take it), ``ChannelUnavailable``, ``ChannelFailed`` and ``ChannelBusy`` (nothing was sent, try again),
    ``DeliveryUncertain`` (it may have been sent).
    """

    @property
    def name(self) -> str: ...

    def idempotent(self, target: str) -> bool:
        """Return whether the same delivery, sent twice, arrives there once."""

    def line(self, target: str) -> str | None:
        """Return the key under which rate limits and the circuit breaker count the target.

        None: not counted, because the delivery does not leave this machine.
        """

    async def send(self, delivery: DeliveryRequest) -> DeliveryReceipt:
        """Send it and return the platform's own id of the message as proof."""


@dataclass(frozen=True, slots=True)
class DeliveryOutcome:
    """The state of a delivery, and the platform's id of the message if it has arrived."""

    delivery_id: UUID
    state: DeliveryState
    message_id: str | None = None
    reason: str | None = None


class DeliveryQueue:
    """The Messenger's deliveries, as the tools of a channel see them (``ctx.service``)."""

    async def accept(self, delivery: DeliveryRequest) -> UUID:
        """Store and queue a delivery, or park it for approval. Returns its id, also of a duplicate."""
        raise NotImplementedError

    async def outcome(self, delivery_id: UUID, wait_s: float) -> DeliveryOutcome:
        """Return the state of a delivery, after waiting up to ``wait_s`` for it to end."""
        raise NotImplementedError


class RequestProgress:
    """Tells a connector when a request that it handed in was answered, to end its progress signs.

    Kept in memory: after a restart of the Switchboard nobody waits for the answers of older requests.
    """

    def __init__(self) -> None:
        self._waiting: dict[UUID, asyncio.Future[bool]] = {}

    async def answered_well(self, request_id: UUID) -> bool:
        """Wait for the first answer to the request. Returns False if the answer reports a failure."""
        loop = asyncio.get_running_loop()
        waiting = self._waiting.setdefault(request_id, loop.create_future())
        try:
            return await asyncio.shield(waiting)
        finally:
            self._waiting.pop(request_id, None)

    def answered(self, request_id: UUID, *, well: bool) -> None:
        waiting = self._waiting.get(request_id)
        if waiting is not None and not waiting.done():
            waiting.set_result(well)


@dataclass(frozen=True, slots=True)
class ReplyContext:
    """Properties of a stored message that the answer to it needs."""

    answerable: bool = True  # False: nobody reads an answer there; it goes to the owner instead
    subject: str | None = None
    references: tuple[str, ...] = ()  # platform ids of the thread's messages, oldest first


class ConnectorInbox(Protocol):
    """The Switchboard as a connector sees it, in the same process or over MCP."""

    async def accept(
        self, envelope: InboundEnvelope, *, counted_as: str | None = None
    ) -> dict[str, Any]:
        """Store a message and return the answer of the ``ingest`` tool once it is committed.

        It is counted under its endpoint, or under ``counted_as``.
        """

    async def accept_history(self, envelopes: Sequence[InboundEnvelope], *, counted_as: str) -> int:
        """Store old messages in one transaction, for search only, and return how many were new.

        No butler reads them and nobody is asked about their senders.
        """

    async def save_heartbeat(self, heartbeat: Heartbeat) -> None:
        """Tell that a connector is alive. The first heartbeat registers it."""

    async def read_checkpoint(self, kind: str, endpoint: str) -> dict[str, Any] | None:
        """Return the cursor that was saved last, or None."""

    async def save_checkpoint(
        self, kind: str, endpoint: str, instance_id: UUID, cursor: dict[str, Any]
    ) -> None:
        """Save the cursor. Raises StateConflict if another instance has taken over."""


@dataclass(frozen=True, slots=True)
class InboundContext:
    """The parts of the Switchboard that a channel's routes and connector may use."""

    clock: Clock
    secret: ReadSecret
    inbox: ConnectorInbox
    # Counts a message that was rejected before it became an envelope: endpoint, reason.
    count_rejected: Callable[[str, str], None]
    # Makes an address of a channel the owner's, or no longer: channel, address, is the owner's.
    set_owner_address: Callable[[str, str, bool], Awaitable[None]]
    # Tells the owner something, once per key: key, message.
    tell_owner: Callable[[str, str], Awaitable[None]]
    progress: RequestProgress = field(default_factory=RequestProgress)


@dataclass(frozen=True, slots=True)
class OutboundContext:
    """The parts of the Messenger that a channel's sender may use."""

    clock: Clock
    secret: ReadSecret
    database: Database


@dataclass(frozen=True, slots=True)
class ChannelCheck:
    """One line of ``butlers doctor``."""

    name: str
    state: Literal["ok", "absent", "broken"]
    detail: str
    hint: str | None = None


class ChannelConfig(ConfigTable):
    """Base of a channel's configuration: frozen, and an unknown key is an error."""


class Channel:
    """Base class of channels. Each default contributes nothing.

    A configuration is a pydantic model (or another annotation that pydantic validates) of one table.
    The methods get the validated value.
    """

    name: ClassVar[str]
    outbound_config: ClassVar[Any] = None  # [channels.<name>] in the Messenger's butler.toml
    inbound_config: ClassVar[Any] = None  # [connectors.<name>] in the Switchboard's butler.toml
    always_on: ClassVar[bool] = False  # sends without a [channels.<name>] table
    shows_reactions: ClassVar[bool] = False  # an emoji can be put on a message
    threads_are_topics: ClassVar[bool] = False  # a thread stays with the butler it began with
    known_tier: ClassVar[PolicyTier | None] = None  # of interactive messages of known senders
    tools: ClassVar[tuple[ToolFunction, ...]] = ()  # offered by the Messenger while it sends
    # Table -> SQL condition of the rows that the Messenger's retention may delete (tools/role.py).
    retention: ClassVar[Mapping[str, str]] = {}

    def normalize_address(self, identity: str) -> str:
        """Return the form under which an address is stored, so that one person is not two."""
        return identity.strip()

    def sender(self, config: Any, context: OutboundContext) -> ChannelSender:
        """Build the sender. Called once, if the channel has an outbound configuration."""
        raise NotImplementedError(f"the channel {self.name} cannot send")

    def services(
        self, config: Any, context: OutboundContext, sender: ChannelSender
    ) -> Sequence[object]:
        """Return the objects that the channel's tools find on the Messenger (``ctx.service``)."""
        return ()

    def reply_context(self, raw: Mapping[str, Any]) -> ReplyContext:
        """Return what an answer needs to know of the message with this ``payload.raw``."""
        return ReplyContext()

    def routes(self, config: Any, context: InboundContext) -> Mapping[str, RequestHandler]:
        """Return the handlers of POST requests by path, such as ``/webhook/{name}``."""
        return {}

    async def run_connector(self, config: Any, context: InboundContext) -> None:
        """Fetch messages until cancelled. Returns at once if there is nothing to fetch."""

    def check(
        self, outbound: Any, inbound: Any, secrets: Collection[str] | None
    ) -> Sequence[ChannelCheck]:
        """Return the lines for ``butlers doctor``.

        ``outbound`` and ``inbound`` are None if they are not configured. ``secrets`` are the names of
        the stored secrets, or None while no butler runs, because then they cannot be read.
        """
        return ()


async def read_body(request: Request, limit: int = MAX_BODY_BYTES) -> bytes:
    """Return the body. Raises MessageTooLarge before more than the limit is in memory.

    A body whose declared length exceeds the limit is not read at all.
    """
    declared = request.headers.get("content-length", "0")  # the HTTP server accepts only digits
    body = bytearray()
    if int(declared) <= limit:
        async for chunk in request.stream():
            body += chunk
            if len(body) > limit:
                break
        else:
            return bytes(body)
    raise MessageTooLarge(f"the body has more than {limit:,} bytes", hint="send it in pieces")
