"""Failed sessions: tell the people who wait, and keep the work until it can be done.

Every failure has one class (``domain.session.FAILURE_CLASSES``). After an outage the work is tried again with
growing pauses, for up to a day. A failure of unknown cause is tried again a few times. A failure that the
owner has to mend keeps the work for as long as that takes. Everything else is a dead letter.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import NoReturn

from butlers.db.database import Connection, Database
from butlers.domain.clock import Clock, uuid7
from butlers.domain.delivery import DeliveryRequest
from butlers.domain.errors import (
    ButlersError,
    OverBudget,
    Postponed,
    RateLimited,
    SessionFailed,
    SessionInterrupted,
    SessionUnavailable,
    WaitsForOwner,
)
from butlers.domain.faults import shortened
from butlers.domain.message import RequestContext, joined
from butlers.domain.queues import ROUTES
from butlers.domain.session import FailureClass, Outcome, SessionResult
from butlers.queue import leased_queue as queue
from butlers.queue import notice_log
from butlers.queue.outbox import queue_delivery, queue_reply

TELL_AFTER = timedelta(minutes=1)
WAITING = "I cannot answer that right now. Your message is kept, and I will try again."
MOST_SESSIONS = 4  # for one message, if each of them fails for an unknown reason
# Pauses between two tries of a message that waits for the owner: the key may have been replaced.
LOOK_AGAIN, LONGEST_LOOK = timedelta(minutes=15), timedelta(hours=6)
# Without a model nothing is tried again before the owner says so.
UNTIL_ASKED = timedelta(days=3650)
HOW_TO_GO_ON = "Mend it and send /retry."
_CAUSES = {
    Outcome.NO_CREDENTIAL: "its model does not accept the credential",
    Outcome.NO_CREDIT: "the account at the model's vendor has no credit left",
}


@dataclass(slots=True)
class SessionRecovery:
    """Decides for one butler what becomes of the messages whose sessions failed."""

    butler: str
    database: Database
    clock: Clock
    waits_for_budget: bool = True
    # Messages may wait for the owner: the next session that ends well makes them due.
    _may_wait: bool = field(default=True, init=False)

    async def handle(self, request: RequestContext, result: SessionResult, attempt: int) -> None:
        """Tell the sender or the owner, and raise the error that keeps the message. Return for a result
        that is an answer, however bad."""
        match result.failure_class:
            case FailureClass.OUTAGE:
                await self._tell_of_waiting(request)
            case FailureClass.RETRY if attempt < MOST_SESSIONS:
                await self._tell_of_waiting(request)
            case FailureClass.OWNER:
                await self._keep(request, result)
            case None:
                if result.ok and result.usage.input_tokens is not None and self._may_wait:
                    await self._go_on()
                return
        raise error_of(result, attempt)

    async def handle_run(self, result: SessionResult, attempt: int) -> None:
        """Do the same for a scheduled run, which nobody waits for: only the owner is told of a cause to
        mend. A run that starts too late is then missed, as its schedule says."""
        match result.failure_class:
            case None | FailureClass.FINAL:
                return
            case FailureClass.OWNER:
                async with self.database.transaction() as connection:
                    await self.tell_owner(connection, result)
                raise Postponed(str(error_of(result, 0)), self.clock.now() + LOOK_AGAIN)
        raise error_of(result, attempt)

    async def _go_on(self) -> None:
        """Make due what waits for the owner: a model has just answered."""
        self._may_wait = False
        async with self.database.transaction() as connection:
            await queue.make_due(connection, ROUTES)

    async def over_budget(self, request: RequestContext, error: OverBudget) -> str:
        """Postpone the message to the next budget, and say so once per day and conversation. Return the
        refusal where the butler does not wait."""
        if not self.waits_for_budget or error.until is None:
            return f"I cannot answer that today: {error}."
        why, when = str(error), f"{error.until:%d %B, %H:%M %Z}"
        reply = f"{why[:1].upper()}{why[1:]}. Your message is kept, and answered after {when}."
        async with self.database.transaction() as connection:
            if await notice_log.record_notice(
                connection, notice_log.OVER_BUDGET, request.conversation, error.until.date()
            ):
                await queue_reply(connection, self.butler, request, reply)
        raise Postponed(str(error), error.until)

    async def _tell_of_waiting(self, request: RequestContext) -> None:
        """Tell the sender of a long wait. Equal texts are one delivery, so this happens once."""
        if self.clock.now() - request.received_at > shortened(TELL_AFTER):
            async with self.database.transaction() as connection:
                await queue_reply(connection, self.butler, request, WAITING)

    async def _keep(self, request: RequestContext, result: SessionResult) -> NoReturn:
        """Keep the message until the owner has mended the cause, and tell the owner once a day."""
        no_model = result.outcome is Outcome.NO_MATCH
        self._may_wait = self._may_wait or not no_model
        async with self.database.transaction() as connection:
            reply = result.text if no_model else WAITING
            await queue_reply(connection, self.butler, request, reply)
            if not no_model:
                await self.tell_owner(connection, result)
        now = self.clock.now()
        if no_model:
            raise Postponed(queue.KEPT, now + UNTIL_ASKED)
        pause = min(max((now - request.received_at) / 4, LOOK_AGAIN), LONGEST_LOOK)
        raise Postponed(str(error_of(result, 0)), now + shortened(pause))

    async def tell_owner(self, connection: Connection, result: SessionResult) -> None:
        """Tell the owner what has to be mended, once a day for each cause."""
        today = self.clock.now().date()
        whom = joined(self.butler, str(result.outcome))
        if not await notice_log.record_notice(connection, notice_log.NEEDS_OWNER, whom, today):
            return
        cause = _CAUSES.get(result.outcome, str(result.outcome))
        text = (
            f"{self.butler} cannot answer: {cause}. {result.error or ''}".strip()
            + f"\nMessages are kept. {HOW_TO_GO_ON}"
        )
        await queue_delivery(connection, DeliveryRequest.to_owner(uuid7(), self.butler, text))

    async def ask_about_kept(self) -> None:
        """Ask the owner about messages that were kept without a model, now that there is one."""
        async with self.database.transaction() as connection:
            kept = await queue.count_kept(connection, ROUTES)
            today = self.clock.now().date()
            if not kept or not await notice_log.record_notice(
                connection, notice_log.KEPT, self.butler, today
            ):
                return
            what = "1 message was" if kept == 1 else f"{kept} messages were"
            text = (
                f"{what} kept while {self.butler} had no language model. It has one now: send"
                " /retry to have them answered."
            )
            notice = DeliveryRequest.to_owner(uuid7(), self.butler, text)
            await queue_delivery(connection, notice)


def error_of(result: SessionResult, attempt: int) -> ButlersError:
    """Return the error that a failed session is for the queue."""
    why = result.error or str(result.outcome)
    match result.failure_class:
        case FailureClass.OUTAGE if result.outcome is Outcome.RATE_LIMITED:
            limited = RateLimited(why)
            limited.after_s = result.retry_after_s
            return limited
        case FailureClass.OUTAGE:
            return SessionUnavailable(why)
        case FailureClass.RETRY if attempt < MOST_SESSIONS:
            return SessionInterrupted(why)
        case FailureClass.OWNER:
            return WaitsForOwner(why)
    done = dict.fromkeys(call.tool for call in result.tool_calls if call.ok and not call.of_cli)
    return SessionFailed(f"{why}; done until then: {', '.join(done)}" if done else why)
