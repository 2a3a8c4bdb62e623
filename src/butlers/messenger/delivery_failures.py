"""What an error of a channel says about a delivery, as the books keep it."""

from __future__ import annotations

from butlers.domain.delivery import AttemptOutcome
from butlers.domain.errors import (
    ButlersError,
    ChannelBusy,
    ChannelError,
    ChannelFailed,
    ChannelUnavailable,
    DeliveryRefused,
    DeliveryUncertain,
)
from butlers.domain.redaction import redactor
from butlers.messenger.delivery_attempts import Failure

LONGEST = 300  # characters that are kept of what an error or a platform says

_OUTCOMES: dict[type[ChannelError], AttemptOutcome] = {
    DeliveryRefused: AttemptOutcome.REFUSED,
    ChannelUnavailable: AttemptOutcome.UNAVAILABLE,
    ChannelFailed: AttemptOutcome.FAILED,
    ChannelBusy: AttemptOutcome.BUSY,
    DeliveryUncertain: AttemptOutcome.UNCERTAIN,
}


def failure_of(error: ButlersError) -> Failure:
    if isinstance(error, ChannelError):
        outcome = _OUTCOMES.get(type(error), AttemptOutcome.UNCERTAIN)
        pause_s = error.pause_s if isinstance(error, ChannelBusy) else None
        response = _excerpt(error.response) if error.response else None
        return Failure(outcome, error.code, _excerpt(str(error)), response, pause_s)
    # One of our own, before anything left the house: a secret that is not set.
    outcome = AttemptOutcome.UNAVAILABLE if error.retryable else AttemptOutcome.REFUSED
    return Failure(outcome, error.code, _excerpt(str(error)))


def crash_of(error: Exception) -> Failure:
    """A mistake in the channel itself: how far it came, nobody knows."""
    words = _excerpt(f"{type(error).__name__}: {error}")
    return Failure(AttemptOutcome.UNCERTAIN, "channel_crashed", words)


def _excerpt(text: str) -> str:
    """On one line, without secrets and without what a database can not hold."""
    plain = " ".join(redactor.scrub(text).replace("\x00", " ").split())
    return plain.encode("utf-8", "replace").decode()[:LONGEST]
