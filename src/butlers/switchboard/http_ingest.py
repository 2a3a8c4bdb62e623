"""Ingest without MCP: ``POST /ingest``, the HTTP routes of channels, and channels in this process.

They answer like the ``ingest`` tool: a message is committed before its request id is returned.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid5

import structlog
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from butlers.channels.base import (
    Channel,
    InboundContext,
    RequestHandler,
    RequestProgress,
    read_body,
)
from butlers.channels.registry import build_routes
from butlers.domain.caller import Caller, CallerKind
from butlers.domain.delivery import DeliveryRequest
from butlers.domain.errors import (
    ButlersError,
    InternalError,
    InvalidMessage,
    MessageTooLarge,
    NotAllowed,
    NotAuthenticated,
    QueueFull,
)
from butlers.domain.faults import kill_point
from butlers.domain.json_safe import parse_json
from butlers.domain.message import InboundEnvelope
from butlers.domain.queues import SWITCHBOARD
from butlers.domain.registration import Heartbeat
from butlers.domain.trace import HEADER, TraceContext, in_trace
from butlers.queue.outbox import queue_delivery
from butlers.switchboard import connectors, senders
from butlers.switchboard.connectors import IngestOutcome
from butlers.switchboard.ingest import InboundService, as_answer
from butlers.tools.call_results import error_fields
from butlers.tools.role import HttpRoute, RoleParts
from butlers.wire.codec import decode

log = structlog.get_logger()

_NOTICE_IDS = UUID("f0a2c1de-5d53-4bb0-8a0e-0c8d5b4f7a36")  # name space of delivery ids

STATUS = {
    NotAuthenticated: 401,
    NotAllowed: 403,
    MessageTooLarge: 413,
    QueueFull: 429,
}


@dataclass(frozen=True, slots=True)
class ChannelInbox:
    """The Switchboard as channels in its process see it. Each call is one transaction."""

    parts: RoleParts
    inbound: InboundService
    progress: RequestProgress = field(default_factory=RequestProgress)

    def context(self) -> InboundContext:
        async def secret(name: str) -> str:
            return await self.parts.credentials.require(name, env=name)

        return InboundContext(
            clock=self.parts.clock,
            secret=secret,
            inbox=self,
            count_rejected=lambda endpoint, reason: self.inbound.stats.count(
                endpoint, IngestOutcome.REFUSED, reason
            ),
            set_owner_address=self._set_owner_address,
            tell_owner=self._tell_owner,
            progress=self.progress,
        )

    async def accept(
        self, envelope: InboundEnvelope, *, counted_as: str | None = None
    ) -> dict[str, Any]:
        async with self.parts.database.transaction() as connection:
            accepted = await self.inbound.accept(connection, envelope, counted_as=counted_as)
            kill_point("door.before_commit")
        kill_point("door.committed")
        return as_answer(accepted)

    async def accept_history(self, envelopes: Sequence[InboundEnvelope], *, counted_as: str) -> int:
        async with self.parts.database.transaction() as connection:
            new = await self.inbound.intake.store_history(connection, envelopes)
        self.inbound.stats.count(counted_as, IngestOutcome.NEW, times=new)
        return new

    async def save_heartbeat(self, heartbeat: Heartbeat) -> None:
        async with self.parts.database.transaction() as connection:
            await connectors.record_heartbeat(connection, self.inbound.stats, heartbeat)

    async def read_checkpoint(self, kind: str, endpoint: str) -> dict[str, Any] | None:
        async with self.parts.database.transaction() as connection:
            found = await connectors.read_checkpoint(connection, kind, endpoint)
        return found.cursor if found else None

    async def save_checkpoint(
        self, kind: str, endpoint: str, instance_id: UUID, cursor: dict[str, Any]
    ) -> None:
        async with self.parts.database.transaction() as connection:
            await connectors.advance_checkpoint(connection, kind, endpoint, instance_id, cursor)

    async def _tell_owner(self, key: str, message: str) -> None:
        notice = DeliveryRequest.to_owner(uuid5(_NOTICE_IDS, key), SWITCHBOARD, message)
        async with self.parts.database.transaction() as connection:
            await queue_delivery(connection, notice)

    async def _set_owner_address(self, channel: str, address: str, is_owners: bool) -> None:
        async with self.parts.database.transaction() as connection:
            if is_owners:
                owner = await senders.owner_id(connection)
                await senders.add_address(connection, owner, channel, address)
            else:
                await senders.remove_address(connection, channel, address)


@dataclass(frozen=True, slots=True)
class HttpIngest:
    parts: RoleParts
    inbound: InboundService
    inbox: ChannelInbox
    channels: Mapping[Channel, Any]  # with inbound configuration

    def routes(self) -> tuple[HttpRoute, ...]:
        return (
            HttpRoute("/ingest", self._endpoint(self._ingest)),
            *(
                HttpRoute(path, self._endpoint(handler))
                for path, handler in build_routes(self.channels, self.inbox.context()).items()
            ),
        )

    def _endpoint(self, handle: RequestHandler) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            trace = TraceContext.parse(request.headers.get(HEADER, ""))
            try:
                with in_trace(trace), self.parts.in_flight.counted(_HTTP_CALLER):
                    return JSONResponse(await handle(request), 202)
            except ButlersError as error:
                return _error_response(error)
            except ClientDisconnect:  # this answer is not sent
                return Response(status_code=400)
            except Exception:  # the edge: the client gets a 500, the log the cause
                log.exception("request failed", path=request.url.path)
                return _error_response(InternalError())

        return endpoint

    async def _ingest(self, request: Request) -> dict[str, Any]:
        data: Any = None
        try:
            self._check_token(request)
            data = _parsed(await read_body(request))
            envelope = decode(InboundEnvelope, data)
        except ButlersError as error:
            self.inbound.count_invalid(data, error.message)
            raise
        return await self.inbox.accept(envelope)

    def _check_token(self, request: Request) -> None:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            raise NotAuthenticated
        caller, _session = self.parts.tokens.identify(token)
        if caller.kind is not CallerKind.OWNER:
            raise NotAllowed(f"{caller.name} may not send messages to /ingest")


_HTTP_CALLER = Caller(CallerKind.OWNER, "http")


def _parsed(body: bytes) -> Any:
    try:
        return parse_json(body)
    except ValueError as error:
        raise InvalidMessage(
            f"the body is not JSON: {error}", hint="send an ingest.v1 envelope"
        ) from None


def _error_response(error: ButlersError) -> JSONResponse:
    status = next(
        (code for kind, code in STATUS.items() if isinstance(error, kind)),
        503 if error.retryable else 500 if isinstance(error, InternalError) else 400,
    )
    headers = {"Retry-After": "1"} if error.retryable else None
    return JSONResponse({"error": error_fields(error)}, status, headers)
