"""The Switchboard's door for programs that do not speak MCP: ``POST /ingest`` and ``POST /webhook/NAME``.

What they answer is what the ``ingest`` tool answers: a message is committed before its request id is said.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import structlog
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from butlers.channels.webhook import parser as webhook_in
from butlers.db.database import Connection
from butlers.domain.caller import Caller, CallerKind
from butlers.domain.connector import Heartbeat
from butlers.domain.errors import (
    ButlersError,
    DatabaseUnavailable,
    InternalError,
    InvalidMessage,
    MessageTooLarge,
    NotAllowed,
    NotAuthenticated,
    QueueFull,
)
from butlers.domain.faults import kill_point
from butlers.domain.ids import uuid7
from butlers.domain.message import Channel, InboundEnvelope
from butlers.domain.request import OWNER
from butlers.domain.trace import HEADER, TraceContext, in_trace
from butlers.secrets.credentials import CredentialMissing
from butlers.switchboard import connector_store as connectors
from butlers.switchboard import contacts
from butlers.switchboard.connector_health import HEARTBEAT_S
from butlers.switchboard.inbound import InboundService
from butlers.switchboard.ingest_stats import Seen
from butlers.switchboard.tools import as_answer
from butlers.tools.role import HttpRoute, RoleParts
from butlers.wire.codec import decode

log = structlog.get_logger()

LARGEST_BODY = 40 * 2**20
STATUS = {
    NotAuthenticated: 401,
    NotAllowed: 403,
    MessageTooLarge: 413,
    QueueFull: 429,
}

Work = Callable[[Request], Awaitable[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class HttpIngest:
    parts: RoleParts
    inbound: InboundService

    def routes(self) -> tuple[HttpRoute, ...]:
        return (
            HttpRoute("/ingest", self._answering(self._ingest)),
            HttpRoute("/webhook/{name}", self._answering(self._webhook)),
        )

    def _answering(self, work: Work) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            trace = TraceContext.parse(request.headers.get(HEADER, ""))
            try:
                with in_trace(trace), self.parts.in_flight.counted(_SOMEBODY):
                    return JSONResponse(await work(request), 202)
            except ButlersError as error:
                return _refusal(error)
            except Exception:  # the edge of the door
                log.exception("a message could not be taken")
                return _refusal(InternalError())

        return endpoint

    async def _ingest(self, request: Request) -> dict[str, Any]:
        data: Any = None
        try:
            self._check_token(request)
            data = _parsed(await _read(request))
            envelope = decode(InboundEnvelope, data)
        except ButlersError as error:
            self.inbound.refuse(data, error.message)
            raise
        return await self._accept(envelope)

    def _check_token(self, request: Request) -> None:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            raise NotAuthenticated
        caller, _session = self.parts.tokens.identify(token)
        if caller.kind is not CallerKind.OWNER:
            raise NotAllowed(f"{caller.name} may not take messages in")

    async def _webhook(self, request: Request) -> dict[str, Any]:
        name = request.path_params["name"]
        config = self.parts.config.connectors.webhook.get(name)
        if config is None:
            raise NotAuthenticated  # which names there are is nobody's business
        body = await _read(request)
        try:
            secret = await self.parts.credentials.require(config.secret, env=config.secret)
            webhook_in.check_signature(request.headers, body, secret, self.parts.clock)
            envelope = webhook_in.parse(name, body, self.parts.clock, owners=config.owner)
        except ButlersError as error:
            self.inbound.stats.count(name, Seen.REFUSED, error.message)
            if isinstance(error, CredentialMissing):
                log.warning("a webhook has no secret", webhook=name, error=error.message)
                raise NotAuthenticated from None  # what is missing is the owner's to know
            raise
        return await self._accept(envelope, counted_as=name)

    async def _accept(
        self, envelope: InboundEnvelope, *, counted_as: str | None = None
    ) -> dict[str, Any]:
        async with self.parts.database.transaction() as connection:
            accepted = await self.inbound.accept(connection, envelope, counted_as=counted_as)
            kill_point("door.before_commit")
        kill_point("door.committed")
        return as_answer(accepted)


@dataclass(frozen=True, slots=True)
class WebhookPresence:
    """Registers the configured webhooks as connectors, and the owner's as addresses of the owner."""

    parts: RoleParts

    async def run(self) -> None:
        clock = self.parts.clock
        instance, began = uuid7(), clock.monotonic()
        while True:
            try:
                async with self.parts.database.transaction() as connection:
                    await self._register(connection, instance, clock.monotonic() - began)
            except DatabaseUnavailable:
                pass
            except Exception:  # a loop edge: the next heartbeat may succeed
                log.exception("webhook heartbeat failed")
            await asyncio.sleep(HEARTBEAT_S)

    async def _register(self, connection: Connection, instance: UUID, uptime_s: float) -> None:
        now = self.parts.clock.now()
        for name, config in self.parts.config.connectors.webhook.items():
            address = f"{name}:{OWNER}"
            if config.owner:
                owner = await contacts.owner_id(connection)
                await contacts.add_address(connection, owner, Channel.WEBHOOK, address)
            else:
                await contacts.remove_address(connection, Channel.WEBHOOK, address)
            beat = Heartbeat(Channel.WEBHOOK, name, instance, now, uptime_s=uptime_s)
            await connectors.keep_heartbeat(connection, beat)


_SOMEBODY = Caller(CallerKind.OWNER, "http")


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError as error:
        raise InvalidMessage(
            f"the body is not JSON: {error}", hint="send an ingest.v1 envelope"
        ) from None


async def _read(request: Request) -> bytes:
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > LARGEST_BODY:
            raise MessageTooLarge(
                f"the body has more than {LARGEST_BODY:,} bytes", hint="send it in pieces"
            )
    return body


def _refusal(error: ButlersError) -> JSONResponse:
    status = next(
        (code for kind, code in STATUS.items() if isinstance(error, kind)),
        503 if error.retryable else 500 if isinstance(error, InternalError) else 400,
    )
    told = {
        "code": error.code,
        "message": error.message,
        "hint": error.hint,
        "retryable": error.retryable,
    }
    headers = {"Retry-After": "1"} if error.retryable else None
    return JSONResponse({"error": told}, status, headers)
