"""The Messenger's counter: it sends what was written down, once, and keeps the proof.

That a delivery is being sent is committed before its channel is asked. Whoever finds it so later knows that
it may have gone out, and asks again only where that can not double it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import structlog

from butlers.channels.base import ChannelSender
from butlers.db.database import Connection, Database
from butlers.domain.clock import Clock
from butlers.domain.delivery import AttemptOutcome, DeliveryReceipt, DeliveryRequest, DeliveryState
from butlers.domain.errors import (
    ButlersError,
    DatabaseUnavailable,
    DeliveryRefused,
    DeliveryUncertain,
    LeaseLost,
    Postponed,
)
from butlers.domain.faults import kill_point
from butlers.messenger import deliveries, delivery_attempts
from butlers.messenger.deliveries import DeliveryRecord
from butlers.messenger.delivery_attempts import Failure, recipient_of
from butlers.messenger.delivery_failures import crash_of, failure_of
from butlers.messenger.terms import Terms
from butlers.messenger.traffic import LOOK_BACK, Traffic
from butlers.messenger.turn import (
    End,
    Go,
    Later,
    Turn,
    after,
    give_up,
    judge,
    tries_after,
    write_turn,
)
from butlers.queue import leased_queue as queue
from butlers.queue.leased_queue import Lease
from butlers.wire.codec import decode
from butlers.wire.telemetry import delivery_span

log = structlog.get_logger()

RETRY_S = 0.5


@dataclass(frozen=True, slots=True)
class _Attempt:
    """One attempt on its way."""

    lease: Lease
    record: DeliveryRecord
    channel: ChannelSender
    line: str | None
    number: int
    line_works: bool  # as far as was known when it went

    @property
    def delivery(self) -> DeliveryRequest:
        return self.record.delivery


class Counter:
    def __init__(
        self,
        database: Database,
        channels: Mapping[str, ChannelSender],
        terms: Terms,
        traffic: Traffic,
        clock: Clock,
    ) -> None:
        self._database = database
        self._channels = channels
        self._terms = terms
        self._clock = clock
        self.traffic = traffic

    async def open(self) -> None:
        """Know what an earlier process tried, before the first delivery's turn."""
        async with self._database.transaction() as connection:
            since = self._clock.now() - LOOK_BACK
            self.traffic.rebuild(await delivery_attempts.recent_attempts(connection, since))

    async def send(self, lease: Lease) -> Any:
        """One delivery's turn: it is sent, waits, or is over."""
        delivery = decode(DeliveryRequest, lease.payload)
        with delivery_span(
            delivery.delivery_id, delivery.request_id, delivery.channel, delivery.origin
        ):
            return await self._take_turn(lease, delivery)

    async def _take_turn(self, lease: Lease, delivery: DeliveryRequest) -> Any:
        begun = await self._begin(lease, delivery)
        if not isinstance(begun, _Attempt):
            return _told(begun)
        kill_point("deliveries.sending")
        return await self._attempt(begun)

    # -- before the channel is asked -------------------------------------------------------------

    async def _begin(self, lease: Lease, delivery: DeliveryRequest) -> _Attempt | Later | End:
        """Decide under a lock, and write the decision down with it."""
        channel = self._channels.get(delivery.channel)
        async with self._database.transaction() as connection:
            record = await self._take(connection, lease, delivery)
            turn = self._no_channel(record) if channel is None else self._judge(record, channel)
            if isinstance(turn, Later | End):
                await write_turn(connection, record, turn, self._clock.now())
                return turn
            line = turn.channel.line(delivery.target)
            number = await self._note_begin(connection, delivery, line)
        works = line is None or self.traffic.is_open(line)
        return _Attempt(lease, record, turn.channel, line, number, works)

    async def _take(
        self, connection: Connection, lease: Lease, delivery: DeliveryRequest
    ) -> DeliveryRecord:
        """Where it stands. Whoever froze past its lease does not get as far as the channel."""
        if not await queue.extend(connection, [lease]):
            raise LeaseLost(f"delivery {delivery.delivery_id} was taken over")
        record = await deliveries.lock_delivery(connection, delivery.delivery_id)
        # Found so by the first claim of its item, it was replayed; by a later one, the process ended between
        # writing that it failed and burying it.
        if record.state is not DeliveryState.FAILED or lease.attempt > 1:
            return record
        # A dead letter that was replayed has all its time and all its attempts again.
        await deliveries.accept_again(
            connection,
            delivery.delivery_id,
            "replayed",
            self._terms.deadline(delivery.intent, self._clock.now()),
        )
        return await deliveries.lock_delivery(connection, delivery.delivery_id)

    def _no_channel(self, record: DeliveryRecord) -> End:
        known = ", ".join(self._channels)
        why = f"there is no channel {record.delivery.channel!r}; channels: {known}"
        if record.state.is_over:
            return End(record.state, record.reason)
        return give_up(record, DeliveryState.FAILED, why)

    def _judge(self, record: DeliveryRecord, channel: ChannelSender) -> Turn:
        turn = judge(record, channel, self._terms, self._clock.now())
        line = channel.line(record.delivery.target)
        if isinstance(turn, Go) and line is not None:
            recipient = recipient_of(record.delivery)
            if hold := self.traffic.hold(line, recipient):
                return Later(hold.until, hold.why)
            self.traffic.went(line, recipient)
        return turn

    async def _note_begin(
        self, connection: Connection, delivery: DeliveryRequest, line: str | None
    ) -> int:
        try:
            return await delivery_attempts.begin_attempt(
                connection, delivery, line, self._clock.now()
            )
        except BaseException:
            self._note(line, AttemptOutcome.DIED)
            raise

    # -- the channel is asked, and what it says is kept --------------------------------------------

    async def _attempt(self, attempt: _Attempt) -> Any:
        try:
            receipt = await _ask(attempt.channel, attempt.delivery)
        except (asyncio.CancelledError, DatabaseUnavailable):
            # We are to stop, or our own mailbox is away. "sending" says all that is known.
            self._note(attempt.line, AttemptOutcome.DIED)
            raise
        except ButlersError as error:
            return await self._fail(attempt, failure_of(error))
        except Exception as error:  # the edge to the outside: whatever it raises is on record
            log.exception("a channel crashed", channel=attempt.channel.name)
            return await self._fail(attempt, crash_of(error))
        kill_point("deliveries.sent")
        self._note(attempt.line, AttemptOutcome.DELIVERED)
        return await self._keep_receipt(attempt, receipt)

    async def _fail(self, attempt: _Attempt, failure: Failure) -> Any:
        self._note(attempt.line, failure.outcome)
        kill_point("deliveries.failed")
        turn = await self._keep_failure(attempt, failure)
        kill_point("deliveries.failure_kept")
        return _told(turn)

    async def _keep_receipt(self, attempt: _Attempt, receipt: DeliveryReceipt) -> Any:
        async def write(connection: Connection) -> None:
            await delivery_attempts.end_delivered(connection, receipt, attempt.number)

        await self._write(write)
        return {
            "state": str(DeliveryState.DELIVERED),
            "provider_message_id": receipt.provider_message_id,
        }

    async def _keep_failure(self, attempt: _Attempt, failure: Failure) -> Later | End:
        now, ours = self._clock.now(), True
        tries = tries_after(failure, attempt.record, line_works=attempt.line_works)
        turn = after(failure, attempt.record, attempt.channel, attempt.number, tries, now)
        if attempt.line and isinstance(turn, Later):
            if failure.pause_s is not None:
                self.traffic.pause(attempt.line, turn.until)
            turn = replace(turn, until=self.traffic.behind(attempt.line, turn.until))

        async def write(connection: Connection) -> None:
            nonlocal ours
            delivery_id = attempt.delivery.delivery_id
            ours = bool(await queue.extend(connection, [attempt.lease]))
            record = await deliveries.lock_delivery(connection, delivery_id)
            await delivery_attempts.end_failed(
                connection, delivery_id, attempt.number, now, failure
            )
            if ours and record.state is DeliveryState.SENDING:
                await write_turn(connection, record, turn, now, tries=tries)

        await self._write(write)
        if not ours:
            raise LeaseLost(f"delivery {attempt.delivery.delivery_id} was taken over")
        return turn

    async def _write(self, write: Callable[[Connection], Awaitable[None]]) -> None:
        """Through an outage of the database: what the channel said is known only here."""
        while True:
            try:
                async with self._database.transaction() as connection:
                    await write(connection)
                return
            except DatabaseUnavailable:
                log.warning("could not write down what a channel said yet")
                await asyncio.sleep(RETRY_S)

    def _note(self, line: str | None, outcome: AttemptOutcome) -> None:
        if line is not None:
            self.traffic.ended(line, outcome)


async def _ask(channel: ChannelSender, delivery: DeliveryRequest) -> DeliveryReceipt:
    receipt = await channel.send(delivery)
    if not receipt.provider_message_id.strip():
        raise DeliveryUncertain(f"{channel.name} gave no id for it")
    return receipt


def _told(turn: Later | End) -> Any:
    """What the queue makes of it: done, later, or a dead letter."""
    if isinstance(turn, Later):
        raise Postponed(turn.why, turn.until, aside=not turn.keeps_place)
    if turn.state is DeliveryState.FAILED:
        raise DeliveryRefused(turn.why)
    return {"state": str(turn.state), "reason": turn.why}
