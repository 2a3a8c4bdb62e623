"""Tells the owner once of deliveries that did not arrive.

Deliveries that end at the same time are told in one message.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Iterator, Sequence
from itertools import groupby

import structlog

from butlers.db.database import Database
from butlers.domain.clock import Clock, uuid7
from butlers.domain.delivery import DeliveryRequest, DeliveryState
from butlers.messenger import deliveries
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
        """End orphaned deliveries, and tell the owner of each undelivered one once."""
        now = self._clock.now()
        async with self._database.transaction() as connection:
            await deliveries.end_orphans(connection)
            undelivered = await deliveries.take_unreported(connection, now)
            message = "\n".join(_tell_undelivered(undelivered))
            if message:
                failed = {one.channel for one in undelivered}
                notice = DeliveryRequest.to_owner(uuid7(), self._butler, message)
                await accept_notice(connection, notice, self._policy, now, avoid=failed)


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
