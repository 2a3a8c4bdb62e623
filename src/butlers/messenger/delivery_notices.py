"""Keeps the Messenger's books in order, and tells the owner once of what did not arrive or waits.

What comes to an end together is told together: a hundred late deliveries are one message, not a hundred.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from itertools import groupby

import structlog

from butlers.db.database import Database
from butlers.domain.clock import Clock
from butlers.domain.delivery import DeliveryState
from butlers.domain.errors import DatabaseUnavailable
from butlers.messenger import deliveries, pending_actions
from butlers.messenger.deliveries import ENDS, Ending
from butlers.messenger.delivery_intake import accept_notice
from butlers.messenger.pending_actions import PendingAction
from butlers.messenger.terms import Terms
from butlers.queue.listener import Listener

log = structlog.get_logger()

SCAN_S = 30.0  # also without being woken: what expires does so silently
GATHER_S = 1.0  # for what comes to an end at the same time
LISTED = 5

_WORDS = {
    DeliveryState.UNKNOWN: "I do not know whether {what} arrived, so I do not send {it} again by myself",
    DeliveryState.EXPIRED: "{what} became too late to be of use, and was not sent",
    DeliveryState.FAILED: "{what} could not be delivered",
}


class Housekeeper:
    def __init__(
        self,
        butler: str,
        database: Database,
        listener: Listener,
        terms: Terms,
        clock: Clock,
        *,
        gather_s: float = GATHER_S,
    ) -> None:
        self._butler = butler
        self._database = database
        self._listener = listener
        self._terms = terms
        self._clock = clock
        self._gather_s = gather_s

    async def run(self) -> None:
        woken = asyncio.Event()
        with self._listener.wakes(ENDS, woken):
            while True:
                woken.clear()
                try:
                    await self.tidy()
                except DatabaseUnavailable:
                    pass
                except Exception:  # a loop edge: the next one must be told too
                    log.exception("could not tidy the Messenger's books")
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(SCAN_S):
                        await woken.wait()
                        await asyncio.sleep(self._gather_s)

    async def tidy(self) -> None:
        """Expire what nobody decided, end what died unnoticed, and tell; each is told once."""
        now = self._clock.now()
        async with self._database.transaction() as connection:
            await pending_actions.expire_actions(connection, now)
            await deliveries.end_orphans(connection)
            endings = await deliveries.take_untold(connection, now)
            questions = await pending_actions.take_unasked(connection, now)
            told = "\n".join([*_tell_endings(endings), *_ask(questions)])
            if told:
                await accept_notice(connection, self._butler, told, self._terms, now)


def _tell_endings(endings: Sequence[Ending]) -> Iterator[str]:
    ordered = sorted(endings, key=lambda ending: ending.state)
    for state, group in groupby(ordered, key=lambda ending: ending.state):
        found = list(group)
        many = len(found) > 1
        what = f"{len(found)} messages" if many else "a message"
        words = _WORDS[state].format(what=what, it="them" if many else "it")
        yield f"{words[:1].upper()}{words[1:]}:"
        for ending in found[:LISTED]:
            why = f": {ending.reason}" if ending.reason else ""
            yield f"- {ending.delivery_id} to {ending.target} on {ending.channel}{why}"
        if len(found) > LISTED:
            yield f"- and {len(found) - LISTED} more: `butlers deliveries list --state {state}`"
        yield "`butlers deliveries show ID` says more, `butlers deliveries resend ID` sends it again."


def _ask(questions: Sequence[PendingAction]) -> Iterator[str]:
    if not questions:
        return
    yield "This waits for your word (`butlers approvals approve ID`, or reject):"
    for question in questions[:LISTED]:
        yield f"- {question.id}: {question.summary}"
    if len(questions) > LISTED:
        yield f"- and {len(questions) - LISTED} more: `butlers approvals list`"
