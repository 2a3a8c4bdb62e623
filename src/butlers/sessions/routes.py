"""The route inbox of every butler: a routed message is stored, acknowledged, then handled in a session."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from butlers.db.database import Connection, Database
from butlers.domain.clock import uuid7
from butlers.domain.errors import OverBudget, Postponed
from butlers.domain.links import links_beyond
from butlers.domain.message import RouteRequest
from butlers.domain.queues import ROUTES
from butlers.domain.session import Outcome, SessionRequest, SessionResult
from butlers.queue import leased_queue as queue
from butlers.queue.leased_queue import Lease
from butlers.queue.outbox import addresses_sender, queue_reply, queue_report
from butlers.queue.pause import raise_if_paused
from butlers.queue.worker import FinishWith
from butlers.sessions.judgment import CUT_OFF
from butlers.sessions.recovery import SessionRecovery
from butlers.sessions.session_log import calls_of_request
from butlers.sessions.spawner import Spawner
from butlers.wire.codec import decode, encode
from butlers.wire.telemetry import span

Links = tuple[str, ...]


async def accept_route(connection: Connection, route: RouteRequest) -> bool:
    """Store a route, once per request id; False if it is stored already."""
    request = route.request
    return await queue.enqueue(
        connection, ROUTES, str(request.request_id), encode(route), lane=request.conversation
    )


class RouteInbox:
    def __init__(
        self, butler: str, database: Database, spawner: Spawner, recovery: SessionRecovery
    ) -> None:
        self._butler = butler
        self._database = database
        self._spawner = spawner
        self._recovery = recovery

    async def process(self, lease: Lease) -> Any:
        """Run the session of one route. A retry repeats no call that was made before."""
        route = decode(RouteRequest, lease.payload)
        async with self._database.transaction() as connection:
            await raise_if_paused(connection, datetime.now(UTC))
        with span("butler.route.process", {"butlers.request": str(route.request.request_id)}):
            result, reply, links = await self._answer(route, lease.attempt)

        async def write(connection: Connection) -> None:
            if reply is not None:
                await queue_reply(
                    connection,
                    self._butler,
                    route.request,
                    reply,
                    outside_links=links,
                    failure=not result["well"],
                )
            if route.report:
                await queue_report(connection, route.request, well=result["well"])

        return FinishWith(result, write)

    async def _answer(
        self, route: RouteRequest, attempt: int
    ) -> tuple[dict[str, Any], str | None, Links]:
        """Run the session. Return its outcome, the reply to send, and its links that are not the owner's.

        The reply is None if the session has replied itself.
        """
        session = SessionRequest(
            session_id=uuid7(),
            prompt=route.text,
            trigger_source="route",
            request=route.request,
            request_id=route.request.request_id,
            conversation=route.conversation,
            attachments=route.attachments,
            reactions=route.reactions,
        )
        try:
            result = await self._spawner.run(session)
        except OverBudget as error:
            refusal = await self._recovery.over_budget(route.request, error)
            return {"outcome": str(Outcome.OVER_BUDGET), "well": False}, refusal, ()
        if result.outcome is Outcome.NO_MATCH and route.hint:
            result = replace(result, text=f"{route.hint}\n({result.text})")
        try:
            await self._recovery.handle(route.request, result, attempt)
        except Postponed:
            # After the answer, which shares the report's lane: the parts behind it must not overtake it.
            if result.outcome is Outcome.NO_MATCH and route.report:
                await self._report_kept(route)
            raise
        # A session that was cut off has not finished, even if it has replied before.
        answered = result.outcome not in CUT_OFF and (
            _answered(route, result) or await self._was_answered(route)
        )
        outcome = str(result.outcome)
        ended = {"session_id": str(session.session_id), "outcome": outcome, "well": result.ok}
        reply = None if answered else _reply_text(result)
        return ended, reply, _outside_links(route, result, reply or "")

    async def _report_kept(self, route: RouteRequest) -> None:
        """Report a part that is kept as failed, so that the parts behind it do not wait for it."""
        async with self._database.transaction() as connection:
            await queue_report(connection, route.request, well=False)

    async def _was_answered(self, route: RouteRequest) -> bool:
        """Return whether an earlier session of this request replied before it was cut off."""
        async with self._database.transaction() as connection:
            done = await calls_of_request(connection, route.request.request_id)
        return any(
            call.tool == "notify" and addresses_sender(route.request, call.arguments)
            for call in done
        )


def _answered(route: RouteRequest, result: SessionResult) -> bool:
    return any(
        call.tool == "notify" and call.ok and addresses_sender(route.request, call.arguments)
        for call in result.tool_calls
    )


def _outside_links(route: RouteRequest, result: SessionResult, reply: str) -> Links:
    """Return the links that the owner's message does not contain, if the session read text of others."""
    own = route.text if route.request.is_owners else ""
    return links_beyond(reply, own) if result.outside else ()


def _reply_text(result: SessionResult) -> str:
    """Return the session's own words; a session without any, that got here, has done something."""
    return result.text if result.text.strip() else "That is done."
