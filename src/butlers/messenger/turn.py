"""What a delivery's turn comes to, before its channel is asked and after the channel failed.

Deciding is pure: what is on record and the time go in. ``write_turn`` writes the decision down.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from butlers.channels.base import ChannelSender
from butlers.db.database import Connection
from butlers.domain.delivery import AttemptOutcome, DeliveryState
from butlers.messenger import deliveries, delivery_attempts
from butlers.messenger.deliveries import DeliveryRecord
from butlers.messenger.delivery_attempts import Failure
from butlers.messenger.terms import Terms
from butlers.queue.leased_queue import MAX_ATTEMPTS
from butlers.queue.worker import backoff

_HIGHEST_BACKOFF = 16  # beyond that the pause does not grow any more
DIED = "the process ended while it was being sent"
_DOUBT = "an earlier attempt may have arrived"
_COUNTED = (AttemptOutcome.FAILED, AttemptOutcome.UNCERTAIN)


@dataclass(frozen=True, slots=True)
class Go:
    """It is to be sent now."""

    channel: ChannelSender


@dataclass(frozen=True, slots=True)
class Later:
    until: datetime
    why: str
    expires_at: datetime | None = None  # None: as it was
    keeps_place: bool = True  # what comes after it for the same person waits for it


@dataclass(frozen=True, slots=True)
class End:
    state: DeliveryState
    why: str | None


Turn = Go | Later | End


def judge(record: DeliveryRecord, channel: ChannelSender, terms: Terms, now: datetime) -> Turn:
    """Whether a delivery whose turn has come is sent, waits, or is over."""
    delivery, state = record.delivery, record.state
    expired = record.expires_at <= now
    if state.is_over:
        return End(state, record.reason)
    if state is DeliveryState.SENDING and (expired or not channel.idempotent(delivery.target)):
        return End(DeliveryState.UNKNOWN, DIED)
    if expired:
        return give_up(record, DeliveryState.EXPIRED, "its time was over before its turn came")
    if until := terms.quiet_until(delivery.intent, now):
        # Its time counts from the end of the quiet hours: they defer and never delete.
        deadline = terms.deadline(delivery.intent, until)
        return Later(until, "quiet hours", deadline, keeps_place=False)
    return Go(channel)


def give_up(record: DeliveryRecord, state: DeliveryState, why: str) -> End:
    """That it did not arrive can be said only where no attempt may have."""
    return End(DeliveryState.UNKNOWN, f"{_DOUBT}; {why}") if record.in_doubt else End(state, why)


def after(
    failure: Failure,
    record: DeliveryRecord,
    channel: ChannelSender,
    number: int,
    tries: int,
    now: datetime,
) -> Later | End:
    """What becomes of a delivery whose attempt has failed."""
    match failure.outcome:
        case AttemptOutcome.REFUSED:
            return give_up(record, DeliveryState.FAILED, failure.error)
        case AttemptOutcome.UNCERTAIN if not channel.idempotent(record.delivery.target):
            return End(DeliveryState.UNKNOWN, failure.error)
        case AttemptOutcome.UNCERTAIN if tries >= MAX_ATTEMPTS:
            return End(DeliveryState.UNKNOWN, f"after {tries} attempts: {failure.error}")
        case AttemptOutcome.FAILED if tries >= MAX_ATTEMPTS:
            why = f"after {tries} attempts: {failure.error}"
            return give_up(record, DeliveryState.FAILED, why)
    pause = backoff(min(number, _HIGHEST_BACKOFF))
    if failure.pause_s is not None:
        pause = max(pause, timedelta(seconds=failure.pause_s))
    # Where it is the line that fails, those behind it would fail too; where it is this one, they need not.
    return Later(now + pause, failure.error, keeps_place=failure.outcome not in _COUNTED)


def tries_after(failure: Failure, record: DeliveryRecord, *, line_works: bool) -> int:
    """A channel that is away, busy or known to fail is not the delivery's fault; only its time to live
    ends that."""
    return record.tries + (line_works and failure.outcome in _COUNTED)


async def write_turn(
    connection: Connection,
    record: DeliveryRecord,
    turn: Later | End,
    now: datetime,
    *,
    tries: int | None = None,
) -> None:
    """In the transaction that has locked the record."""
    delivery_id = record.delivery.delivery_id
    if isinstance(turn, Later):
        await deliveries.move(
            connection,
            delivery_id,
            DeliveryState.DEFERRED,
            turn.why,
            not_before=turn.until,
            expires_at=turn.expires_at,
            tries=tries,
        )
    elif turn.state is not record.state:
        died = Failure(AttemptOutcome.DIED, "died", DIED)
        await delivery_attempts.end_failed(connection, delivery_id, None, now, died)
        await deliveries.move(connection, delivery_id, turn.state, turn.why, tries=tries)
