"""The route inbox of every butler: a routed message is stored, acknowledged, then worked on in a session."""

from __future__ import annotations

from typing import Any

from butlers.domain.ids import uuid7
from butlers.domain.route import RouteRequest
from butlers.domain.session import SessionRequest, SessionResult
from butlers.routing.notify import queue_reply
from butlers.sessions.spawner import Spawner
from butlers.store import queue
from butlers.store.database import Connection, Database
from butlers.store.queue import Lease
from butlers.wire.codec import decode, encode
from butlers.wire.telemetry import span

ROUTES = "routes"


async def accept_route(connection: Connection, route: RouteRequest) -> bool:
    """Keep a route, once per request id; False when it was here already."""
    return await queue.enqueue(connection, ROUTES, str(route.request.request_id), encode(route))


class RouteInbox:
    def __init__(self, butler: str, database: Database, spawner: Spawner) -> None:
        self._butler = butler
        self._database = database
        self._spawner = spawner

    async def process(self, lease: Lease) -> Any:
        """One request, one session at a time; a retry repeats no call that already happened."""
        route = decode(RouteRequest, lease.payload)
        with span("butler.route.process", {"butlers.request": str(route.request.request_id)}):
            return await self._answer(route)

    async def _answer(self, route: RouteRequest) -> Any:
        session = SessionRequest(
            session_id=uuid7(),
            prompt=route.text,
            trigger_source="route",
            request=route.request,
            request_id=route.request.request_id,
        )
        result = await self._spawner.run(session)
        if not _answered(result) and result.text:
            async with self._database.transaction() as connection:
                await queue_reply(connection, self._butler, route.request, result.text)
        return {"session_id": str(session.session_id), "outcome": str(result.outcome)}


def _answered(result: SessionResult) -> bool:
    return any(call.tool == "notify" and call.ok for call in result.tool_calls)
