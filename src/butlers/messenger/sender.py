"""Sends stored deliveries over their channels, once, and stores the receipts.

The state ``sending`` is committed before the channel is called. A process that finds a delivery in this
state after a crash knows that it may have been sent, and sends it again only to an idempotent target.
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
from butlers.messenger import deliveries
from butlers.messenger.deliveries import AttemptFailure, DeliveryRecord
from butlers.messenger.limits import LOOK_BACK, DeliveryLimits
from butlers.messenger.policy import DeliveryPolicy
from butlers.messenger.steps import (
    Finish,
    Postpone,
    SendNow,
    Step,
    count_tries,
    crash_of,
    failure_of,
    first_step,
    give_up,
    step_after_failure,
    write_step,
)
from butlers.queue import leased_queue as queue
from butlers.queue.leased_queue import Lease
from butlers.wire.codec import decode
from butlers.wire.telemetry import delivery_span

log = structlog.get_logger()

RETRY_S = 0.5


@dataclass(frozen=True, slots=True)
class _RunningAttempt:
    lease: Lease
    record: DeliveryRecord
    sender: ChannelSender
    line: str | None
    number: int
    line_works: bool  # as known when the attempt started

    @property
    def delivery(self) -> DeliveryRequest:
        return self.record.delivery


class DeliverySender:
    """The handler of the Messenger's queue of deliveries."""

    def __init__(
        self,
        database: Database,
        senders: Mapping[str, ChannelSender],
        policy: DeliveryPolicy,
        limits: DeliveryLimits,
        clock: Clock,
    ) -> None:
        self._database = database
        self._senders = senders  # by channel
        self._policy = policy
        self._clock = clock
        self.limits = limits

    async def open(self) -> None:
        """Restore the limits from the attempts of an earlier process."""
        async with self._database.transaction() as connection:
            since = self._clock.now() - LOOK_BACK
            self.limits.rebuild(await deliveries.recent_attempts(connection, since))

    async def send(self, lease: Lease) -> Any:
        """Handle one queue item: the delivery is sent, postponed or finished."""
        delivery = decode(DeliveryRequest, lease.payload)
        with delivery_span(
            delivery.delivery_id, delivery.request_id, delivery.channel, delivery.origin
        ):
            return await self._handle(lease, delivery)

    async def _handle(self, lease: Lease, delivery: DeliveryRequest) -> Any:
        begun = await self._begin(lease, delivery)
        if not isinstance(begun, _RunningAttempt):
            return _queue_result(begun)
        kill_point("deliveries.sending")
        return await self._call_channel(begun)

    # -- before the channel is called -------------------------------------------------------------

    async def _begin(
        self, lease: Lease, delivery: DeliveryRequest
    ) -> _RunningAttempt | Postpone | Finish:
        """Lock the delivery, decide its next step and store it."""
        sender = self._senders.get(delivery.channel)
        async with self._database.transaction() as connection:
            record = await self._lock(connection, lease, delivery)
            step = self._no_channel(record) if sender is None else self._decide(record, sender)
            if isinstance(step, Postpone | Finish):
                await write_step(connection, record, step, self._clock.now())
                return step
            line = step.sender.line(delivery.target)
            number = await self._begin_attempt(connection, delivery, line)
        works = line is None or self.limits.is_working(line)
        return _RunningAttempt(lease, record, step.sender, line, number, works)

    async def _lock(
        self, connection: Connection, lease: Lease, delivery: DeliveryRequest
    ) -> DeliveryRecord:
        """Lock the delivery. A worker whose lease has expired stops here, before the channel is called."""
        if not await queue.extend(connection, [lease]):
            raise LeaseLost(f"delivery {delivery.delivery_id} was taken over")
        record = await deliveries.lock_delivery(connection, delivery.delivery_id)
        # The first claim of an item finds a failed delivery if its dead letter was replayed; a later claim,
        # if the process ended between storing the failure and storing the dead letter.
        if record.state is not DeliveryState.FAILED or lease.attempt > 1:
            return record
        # A replayed dead letter has all its time and all its attempts again.
        await deliveries.accept_again(
            connection,
            delivery.delivery_id,
            "replayed",
            self._policy.deadline(delivery.intent, self._clock.now()),
        )
        return await deliveries.lock_delivery(connection, delivery.delivery_id)

    def _no_channel(self, record: DeliveryRecord) -> Finish:
        known = ", ".join(self._senders)
        why = f"there is no channel {record.delivery.channel!r}; channels: {known}"
        if record.state.is_over:
            return Finish(record.state, record.reason)
        return give_up(record, DeliveryState.FAILED, why)

    def _decide(self, record: DeliveryRecord, sender: ChannelSender) -> Step:
        step = first_step(record, sender, self._policy, self._clock.now())
        line = sender.line(record.delivery.target)
        if isinstance(step, SendNow) and line is not None:
            recipient = record.delivery.lane
            if hold := self.limits.hold(line, recipient):
                return Postpone(hold.until, hold.reason)
            self.limits.started(line, recipient)
        return step

    async def _begin_attempt(
        self, connection: Connection, delivery: DeliveryRequest, line: str | None
    ) -> int:
        try:
            return await deliveries.begin_attempt(connection, delivery, line, self._clock.now())
        except BaseException:
            self._end_on_line(line, AttemptOutcome.DIED)
            raise

    # -- the channel is called, and its answer is stored --------------------------------------------

    async def _call_channel(self, attempt: _RunningAttempt) -> Any:
        try:
            receipt = await _send(attempt.sender, attempt.delivery)
        except (asyncio.CancelledError, DatabaseUnavailable):
            # The butler stops, or the console's mailbox is not available. The state stays "sending".
            self._end_on_line(attempt.line, AttemptOutcome.DIED)
            raise
        except ButlersError as error:
            return await self._fail(attempt, failure_of(error))
        except Exception as error:  # code of a channel: any error is stored
            log.exception("channel crashed", channel=attempt.sender.name)
            return await self._fail(attempt, crash_of(error))
        kill_point("deliveries.sent")
        self._end_on_line(attempt.line, AttemptOutcome.DELIVERED)
        return await self._store_receipt(attempt, receipt)

    async def _fail(self, attempt: _RunningAttempt, failure: AttemptFailure) -> Any:
        self._end_on_line(attempt.line, failure.outcome)
        kill_point("deliveries.failed")
        step = await self._store_failure(attempt, failure)
        kill_point("deliveries.failure_kept")
        return _queue_result(step)

    async def _store_receipt(self, attempt: _RunningAttempt, receipt: DeliveryReceipt) -> Any:
        async def write(connection: Connection) -> None:
            await deliveries.end_delivered(connection, receipt, attempt.number)

        await self._write(write)
        return {
            "state": str(DeliveryState.DELIVERED),
            "provider_message_id": receipt.provider_message_id,
        }

    async def _store_failure(
        self, attempt: _RunningAttempt, failure: AttemptFailure
    ) -> Postpone | Finish:
        now, ours = self._clock.now(), True
        tries = count_tries(failure, attempt.record, line_works=attempt.line_works)
        step = step_after_failure(
            failure, attempt.record, attempt.sender, attempt.number, tries, now
        )
        if attempt.line and isinstance(step, Postpone):
            if failure.pause_s is not None:
                self.limits.pause(attempt.line, step.until)
            step = replace(step, until=self.limits.after_probe(attempt.line, step.until))

        async def write(connection: Connection) -> None:
            nonlocal ours
            delivery_id = attempt.delivery.delivery_id
            ours = bool(await queue.extend(connection, [attempt.lease]))
            record = await deliveries.lock_delivery(connection, delivery_id)
            await deliveries.end_failed(connection, delivery_id, attempt.number, now, failure)
            if ours and record.state is DeliveryState.SENDING:
                await write_step(connection, record, step, now, tries=tries)

        await self._write(write)
        if not ours:
            raise LeaseLost(f"delivery {attempt.delivery.delivery_id} was taken over")
        return step

    async def _write(self, write: Callable[[Connection], Awaitable[None]]) -> None:
        """Write the channel's answer, and retry while the database is away: it is known only here."""
        while True:
            try:
                async with self._database.transaction() as connection:
                    await write(connection)
                return
            except DatabaseUnavailable:
                log.warning("database unavailable: retrying to store the answer of a channel")
                await asyncio.sleep(RETRY_S)

    def _end_on_line(self, line: str | None, outcome: AttemptOutcome) -> None:
        if line is not None:
            self.limits.ended(line, outcome)


async def _send(sender: ChannelSender, delivery: DeliveryRequest) -> DeliveryReceipt:
    receipt = await sender.send(delivery)
    if not receipt.provider_message_id.strip():
        raise DeliveryUncertain(f"{sender.name} returned no message id")
    return receipt


def _queue_result(step: Postpone | Finish) -> Any:
    """Return the result of the queue item, or raise to postpone it or to make it a dead letter."""
    if isinstance(step, Postpone):
        raise Postponed(step.reason, step.until, aside=not step.keeps_place)
    if step.state is DeliveryState.FAILED:
        raise DeliveryRefused(step.reason)
    return {"state": str(step.state), "reason": step.reason}
