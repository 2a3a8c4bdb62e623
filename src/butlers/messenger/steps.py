"""Decides the next step of a delivery, before its channel is called and after an attempt has failed.

The decisions are pure functions of the stored record and the time. ``write_step`` stores a decision.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from butlers.channels.base import ChannelSender
from butlers.db.database import Connection
from butlers.domain.delivery import AttemptOutcome, DeliveryState
from butlers.domain.errors import (
    ButlersError,
    ChannelBusy,
    ChannelError,
    ChannelFailed,
    ChannelUnavailable,
    CredentialRefused,
    DeliveryRefused,
    DeliveryUncertain,
)
from butlers.domain.redaction import redactor
from butlers.messenger import deliveries
from butlers.messenger.deliveries import AttemptFailure, DeliveryRecord
from butlers.messenger.policy import DeliveryPolicy
from butlers.queue.leased_queue import MAX_ATTEMPTS
from butlers.queue.worker import backoff

MAX_ERROR_LENGTH = 300  # characters that are stored of an error or a response
PROCESS_ENDED = "the process ended while it was being sent"
_MAY_HAVE_ARRIVED = "an earlier attempt may have arrived"
_MAX_BACKOFF_STEP = 16  # the pause does not grow after that
_COUNTED = (AttemptOutcome.FAILED, AttemptOutcome.UNCERTAIN)
_OUTCOMES: dict[type[ChannelError], AttemptOutcome] = {
    DeliveryRefused: AttemptOutcome.REFUSED,
    CredentialRefused: AttemptOutcome.REFUSED,
    ChannelUnavailable: AttemptOutcome.UNAVAILABLE,
    ChannelFailed: AttemptOutcome.FAILED,
    ChannelBusy: AttemptOutcome.BUSY,
    DeliveryUncertain: AttemptOutcome.UNCERTAIN,
}


@dataclass(frozen=True, slots=True)
class SendNow:
    sender: ChannelSender


@dataclass(frozen=True, slots=True)
class Postpone:
    until: datetime
    reason: str
    expires_at: datetime | None = None  # None: unchanged
    keeps_place: bool = True  # later deliveries to the same recipient wait for this one


@dataclass(frozen=True, slots=True)
class Finish:
    state: DeliveryState
    reason: str | None


Step = SendNow | Postpone | Finish


def first_step(
    record: DeliveryRecord, sender: ChannelSender, policy: DeliveryPolicy, now: datetime
) -> Step:
    """Decide whether a delivery whose turn has come is sent, waits, or is over."""
    delivery, state = record.delivery, record.state
    expired = record.expires_at <= now
    if state.is_over:
        return Finish(state, record.reason)
    if state is DeliveryState.SENDING and (expired or not sender.idempotent(delivery.target)):
        return Finish(DeliveryState.UNKNOWN, PROCESS_ENDED)
    if expired:
        return give_up(record, DeliveryState.EXPIRED, "its time was over before its turn came")
    if until := policy.quiet_until(delivery.intent, now):
        # The time to live starts at the end of the quiet hours: they delay and never delete.
        deadline = policy.deadline(delivery.intent, until)
        return Postpone(until, "quiet hours", deadline, keeps_place=False)
    return SendNow(sender)


def give_up(record: DeliveryRecord, state: DeliveryState, reason: str) -> Finish:
    """Finish in the state, or in ``unknown`` if an earlier attempt may have arrived."""
    if record.in_doubt:
        return Finish(DeliveryState.UNKNOWN, f"{_MAY_HAVE_ARRIVED}; {reason}")
    return Finish(state, reason)


def step_after_failure(
    failure: AttemptFailure,
    record: DeliveryRecord,
    sender: ChannelSender,
    number: int,
    tries: int,
    now: datetime,
) -> Postpone | Finish:
    """Decide whether a delivery is tried again after a failed attempt."""
    match failure.outcome:
        case AttemptOutcome.REFUSED:
            return give_up(record, DeliveryState.FAILED, failure.error)
        case AttemptOutcome.UNCERTAIN if not sender.idempotent(record.delivery.target):
            return Finish(DeliveryState.UNKNOWN, failure.error)
        case AttemptOutcome.UNCERTAIN if tries >= MAX_ATTEMPTS:
            return Finish(DeliveryState.UNKNOWN, f"after {tries} attempts: {failure.error}")
        case AttemptOutcome.FAILED if tries >= MAX_ATTEMPTS:
            reason = f"after {tries} attempts: {failure.error}"
            return give_up(record, DeliveryState.FAILED, reason)
    pause = backoff(min(number, _MAX_BACKOFF_STEP))
    if failure.pause_s is not None:
        pause = max(pause, timedelta(seconds=failure.pause_s))
    # If the line fails, later deliveries would fail too; if only this one fails, they need not wait.
    return Postpone(now + pause, failure.error, keeps_place=failure.outcome not in _COUNTED)


def count_tries(failure: AttemptFailure, record: DeliveryRecord, *, line_works: bool) -> int:
    """Return the attempts that count against a delivery.

    A channel that is unavailable, busy or known to fail does not count; only the time to live ends that.
    """
    return record.tries + (line_works and failure.outcome in _COUNTED)


async def write_step(
    connection: Connection,
    record: DeliveryRecord,
    step: Postpone | Finish,
    now: datetime,
    *,
    tries: int | None = None,
) -> None:
    """Store a decision, in the transaction that has locked the record."""
    delivery_id = record.delivery.delivery_id
    if isinstance(step, Postpone):
        await deliveries.set_state(
            connection,
            delivery_id,
            DeliveryState.DEFERRED,
            step.reason,
            not_before=step.until,
            expires_at=step.expires_at,
            tries=tries,
        )
    elif step.state is not record.state:
        died = AttemptFailure(AttemptOutcome.DIED, "died", PROCESS_ENDED)
        await deliveries.end_failed(connection, delivery_id, None, now, died)
        await deliveries.set_state(connection, delivery_id, step.state, step.reason, tries=tries)


def failure_of(error: ButlersError) -> AttemptFailure:
    """Return the failure that an error of a sender means for the attempt."""
    if isinstance(error, ChannelError):
        outcome = _OUTCOMES.get(type(error), AttemptOutcome.UNCERTAIN)
        pause_s = error.pause_s if isinstance(error, ChannelBusy) else None
        response = _excerpt(error.response) if error.response else None
        return AttemptFailure(outcome, error.code, _excerpt(str(error)), response, pause_s)
    # Raised before anything was sent, for example because a secret is not set.
    outcome = AttemptOutcome.UNAVAILABLE if error.retryable else AttemptOutcome.REFUSED
    return AttemptFailure(outcome, error.code, _excerpt(str(error)))


def crash_of(error: Exception) -> AttemptFailure:
    """Return the failure of a sender that crashed: the delivery may have been sent."""
    words = _excerpt(f"{type(error).__name__}: {error}")
    return AttemptFailure(AttemptOutcome.UNCERTAIN, "channel_crashed", words)


def _excerpt(text: str) -> str:
    """Return the start of a text on one line, without secrets and characters that cannot be stored."""
    plain = " ".join(redactor.scrub(text).replace("\x00", " ").split())
    return plain.encode("utf-8", "replace").decode()[:MAX_ERROR_LENGTH]
