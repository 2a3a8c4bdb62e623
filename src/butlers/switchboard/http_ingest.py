"""HTTP routes for programs that do not speak MCP: ``POST /ingest`` and the routes of the channels.

They answer like the ``ingest`` tool: a message is committed before its request id is returned.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import structlog
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from butlers.channels.base import Channel, RequestHandler, read_body
from butlers.channels.registry import build_routes
from butlers.domain.caller import Caller, CallerKind
from butlers.domain.errors import (
    ButlersError,
    InternalError,
    InvalidMessage,
    MessageTooLarge,
    NotAllowed,
    NotAuthenticated,
    QueueFull,
)
from butlers.domain.message import InboundEnvelope
from butlers.domain.trace import HEADER, TraceContext, in_trace
from butlers.switchboard.channel_inbox import ChannelInbox
from butlers.switchboard.ingest import InboundService
from butlers.tools.role import HttpRoute, RoleParts
from butlers.wire.codec import decode

log = structlog.get_logger()

STATUS = {
    NotAuthenticated: 401,
    NotAllowed: 403,
    MessageTooLarge: 413,
    QueueFull: 429,
}


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
        return json.loads(body)
    except ValueError as error:
        raise InvalidMessage(
            f"the body is not JSON: {error}", hint="send an ingest.v1 envelope"
        ) from None


def _error_response(error: ButlersError) -> JSONResponse:
    status = next(
        (code for kind, code in STATUS.items() if isinstance(error, kind)),
        503 if error.retryable else 500 if isinstance(error, InternalError) else 400,
    )
    fields = {
        "code": error.code,
        "message": error.message,
        "hint": error.hint,
        "retryable": error.retryable,
    }
    headers = {"Retry-After": "1"} if error.retryable else None
    return JSONResponse({"error": fields}, status, headers)
