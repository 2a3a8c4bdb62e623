"""The route inbox of every butler: a routed message is stored, acknowledged, then handled in a session."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from butlers.db.database import Connection, Database
from butlers.domain.clock import uuid7
from butlers.domain.errors import OverBudget, Postponed, RateLimited, SessionUnavailable
from butlers.domain.links import links_beyond
from butlers.domain.message import RouteRequest
from butlers.domain.queues import ROUTES
from butlers.domain.session import Outcome, SessionRequest, SessionResult
from butlers.queue import leased_queue as queue
from butlers.queue import notice_log
from butlers.queue.leased_queue import Lease
from butlers.queue.outbox import addresses_sender, queue_reply, queue_report
from butlers.queue.pause import raise_if_paused
from butlers.queue.worker import FinishWith
from butlers.sessions.session_log import calls_of_request
from butlers.sessions.spawner import Spawner
from butlers.wire.codec import decode, encode
from butlers.wire.telemetry import span

TELL_AFTER = timedelta(minutes=1)
WAITING = "I cannot answer that right now. Your message is kept, and I will try again."
Links = tuple[str, ...]
TRY_AGAIN = (Outcome.RATE_LIMITED, Outcome.MCP_UNAVAILABLE, Outcome.BROKER_FAILED)
CUT_OFF = (Outcome.OVER_BUDGET, Outcome.LIMIT_REACHED)


async def accept_route(connection: Connection, route: RouteRequest) -> bool:
    """Store a route, once per request id; False if it is stored already."""
    request = route.request
    return await queue.enqueue(
        connection, ROUTES, str(request.request_id), encode(route), lane=request.conversation
    )


class RouteInbox:
    def __init__(
        self, butler: str, database: Database, spawner: Spawner, *, waits_for_budget: bool = True
    ) -> None:
        self._butler = butler
        self._database = database
        self._spawner = spawner
        self._waits_for_budget = waits_for_budget

    async def process(self, lease: Lease) -> Any:
        """Run the session of one route. A retry repeats no call that was made before."""
        route = decode(RouteRequest, lease.payload)
        async with self._database.transaction() as connection:
            await raise_if_paused(connection, datetime.now(UTC))
        with span("butler.route.process", {"butlers.request": str(route.request.request_id)}):
            result, reply, links = await self._answer(route)

        async def write(connection: Connection) -> None:
            if reply is not None:
                await queue_reply(
                    connection, self._butler, route.request, reply, outside_links=links
                )
            if route.report:
                await queue_report(connection, route.request, well=result["well"])

        return FinishWith(result, write)

    async def _answer(self, route: RouteRequest) -> tuple[dict[str, Any], str | None, Links]:
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
        )
        try:
            result = await self._spawner.run(session)
        except OverBudget as error:
            return *await self._over_budget(route, error), ()
        if result.outcome in TRY_AGAIN:
            await self._tell_of_waiting(route)
            raise _unavailable(result)
        # A session that was cut off has not finished, even if it has replied before.
        answered = result.outcome not in CUT_OFF and (
            _answered(route, result) or await self._was_answered(route)
        )
        outcome = str(result.outcome)
        ended = {"session_id": str(session.session_id), "outcome": outcome, "well": result.ok}
        reply = None if answered else _reply_text(result)
        return ended, reply, _outside_links(route, result, reply or "")

    async def _over_budget(
        self, route: RouteRequest, error: OverBudget
    ) -> tuple[dict[str, Any], str]:
        """Postpone the route to the next budget, and say so once per day and conversation; or refuse it."""
        if not self._waits_for_budget or error.until is None:
            ended = {"outcome": str(Outcome.OVER_BUDGET), "well": False}
            return ended, f"I cannot answer that today: {error}."
        why, when = str(error), f"{error.until:%d %B, %H:%M %Z}"
        reply = f"{why[:1].upper()}{why[1:]}. Your message is kept, and answered after {when}."
        async with self._database.transaction() as connection:
            if await notice_log.record_notice(
                connection, notice_log.OVER_BUDGET, route.request.conversation, error.until.date()
            ):
                await queue_reply(connection, self._butler, route.request, reply)
        raise Postponed(str(error), error.until)

    async def _tell_of_waiting(self, route: RouteRequest) -> None:
        """Tell the sender of a long wait. Equal texts are one delivery, so this happens once."""
        if datetime.now(UTC) - route.request.received_at > TELL_AFTER:
            await self._reply(route, WAITING)

    async def _was_answered(self, route: RouteRequest) -> bool:
        """Return whether an earlier session of this request replied before it was cut off."""
        async with self._database.transaction() as connection:
            done = await calls_of_request(connection, route.request.request_id)
        return any(
            call.tool == "notify" and addresses_sender(route.request, call.arguments)
            for call in done
        )

    async def _reply(self, route: RouteRequest, text: str) -> None:
        async with self._database.transaction() as connection:
            await queue_reply(connection, self._butler, route.request, text)


def _unavailable(result: SessionResult) -> SessionUnavailable:
    if result.outcome is not Outcome.RATE_LIMITED:
        return SessionUnavailable(result.error)
    limited = RateLimited(result.error)
    limited.after_s = result.retry_after_s
    return limited


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
    if result.text.strip():
        return result.text
    if result.ok:
        return "That is done."
    return f"That did not work: {result.error or result.outcome}"
