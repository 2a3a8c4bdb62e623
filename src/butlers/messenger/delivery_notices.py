"""Tells the owner once of deliveries that did not arrive and of those that wait for approval.

Deliveries that end at the same time are told in one message.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Iterator, Sequence
from itertools import groupby

import structlog

from butlers.db.database import Database
from butlers.domain.clock import Clock
from butlers.domain.delivery import DeliveryState
from butlers.messenger import approvals, deliveries
from butlers.messenger.approvals import PendingAction
from butlers.messenger.deliveries import ENDS, UndeliveredNotice
from butlers.messenger.delivery_intake import accept_notice
from butlers.messenger.policy import DeliveryPolicy
from butlers.queue.listener import Listener
from butlers.queue.loops import repeat

log = structlog.get_logger()

SCAN_S = 30.0  # without a notification: expiry does not send one
GATHER_S = 1.0  # after a notification, for deliveries that end at the same time
MAX_LISTED = 5

_TEXTS = {
    DeliveryState.UNKNOWN: "I do not know whether {what} arrived, so I do not send {it} again by myself",
    DeliveryState.EXPIRED: "{what} became too late to be of use, and was not sent",
    DeliveryState.FAILED: "{what} could not be delivered",
}


class DeliveryNotices:
    def __init__(
        self,
        butler: str,
        database: Database,
        listener: Listener,
        policy: DeliveryPolicy,
        clock: Clock,
        *,
        gather_s: float = GATHER_S,
    ) -> None:
        self._butler = butler
        self._database = database
        self._listener = listener
        self._policy = policy
        self._clock = clock
        self._gather_s = gather_s

    async def run(self) -> None:
        woken = asyncio.Event()
        with self._listener.wakes(ENDS, woken):
            await repeat(
                self.send_notices,
                "delivery notices",
                every_s=SCAN_S,
                wake=woken,
                gather_s=self._gather_s,
            )

    async def send_notices(self) -> None:
        """Expire undecided questions, end orphaned deliveries, and tell the owner of each once."""
        now = self._clock.now()
        async with self._database.transaction() as connection:
            await approvals.expire_actions(connection, now)
            await deliveries.end_orphans(connection)
            undelivered = await deliveries.take_unreported(connection, now)
            questions = await approvals.take_unsent_questions(connection, now)
            message = "\n".join([*_tell_undelivered(undelivered), *_ask(questions)])
            if message:
                await accept_notice(connection, self._butler, message, self._policy, now)


def _tell_undelivered(undelivered: Sequence[UndeliveredNotice]) -> Iterator[str]:
    ordered = sorted(undelivered, key=lambda one: one.state)
    for state, group in groupby(ordered, key=lambda one: one.state):
        found = list(group)
        many = len(found) > 1
        what = f"{len(found)} messages" if many else "a message"
        words = _TEXTS[state].format(what=what, it="them" if many else "it")
        yield f"{words[:1].upper()}{words[1:]}:"
        for one in found[:MAX_LISTED]:
            reason = f": {one.reason}" if one.reason else ""
            yield f"- {one.delivery_id} to {one.target} on {one.channel}{reason}"
        if len(found) > MAX_LISTED:
            more = len(found) - MAX_LISTED
            yield f"- and {more} more: `butlers deliveries list --state {shlex.quote(state)}`"
        yield "`butlers deliveries show ID` says more, `butlers deliveries resend ID` sends it again."


def _ask(questions: Sequence[PendingAction]) -> Iterator[str]:
    if not questions:
        return
    yield "This waits for your approval (`butlers approvals approve ID`, or reject):"
    for question in questions[:MAX_LISTED]:
        yield f"- {question.id}: {question.summary}"
    if len(questions) > MAX_LISTED:
        yield f"- and {len(questions) - MAX_LISTED} more: `butlers approvals list`"
