"""What an HTTP answer means for a delivery: refused, busy, away, or nobody knows whether it went out."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import httpx

from butlers.domain.errors import (
    ChannelBusy,
    ChannelError,
    ChannelFailed,
    ChannelUnavailable,
    DeliveryRefused,
    DeliveryUncertain,
)

LONGEST_PAUSE_S = 3600.0
SHORTEST_PAUSE_S = 1.0

# Whoever answers so stands in between, and does not know what the one behind did.
_IN_BETWEEN = frozenset({502, 504})
# "Not now". Whoever says when to come again has refused it; of one that only says so nobody knows how far it
# came: a server may give up in the middle of it, and a gate in front of one may lose patience with it.
_NOT_NOW = frozenset({408, 425, 429, 503})
_CONFLICT = 409
_TOO_MANY = 429
_SERVER_ERRORS = 500


def error_for(
    answer: httpx.Response, text: str, now: datetime, *, repeatable: bool
) -> ChannelError:
    """The error that stands for an answer other than 2xx. ``repeatable``: who has it already does not take
    it twice, so that it may be tried again whatever became of it."""
    status, host = answer.status_code, answer.request.url.host
    said = f"{host} answered {status} {answer.reason_phrase}".rstrip()
    pause_s = retry_after(answer.headers.get("retry-after"), now)
    if status in _NOT_NOW and pause_s is not None:
        busy = ChannelBusy(said, response=text)
        busy.pause_s = pause_s
        return busy
    if status in _NOT_NOW and repeatable:
        away = ChannelBusy if status == _TOO_MANY else ChannelUnavailable
        return away(said, response=text)
    if status in _NOT_NOW or status in _IN_BETWEEN:
        return DeliveryUncertain(said, response=text)
    if status == _CONFLICT or status >= _SERVER_ERRORS:
        # It is at it already, or broke in the middle of it.
        kind = ChannelFailed if repeatable else DeliveryUncertain
        return kind(said, response=text)
    if answer.has_redirect_location:
        return DeliveryRefused(
            said, hint="redirects are not followed; configure the new address", response=text
        )
    return DeliveryRefused(said, response=text)


def retry_after(header: str | None, now: datetime) -> float | None:
    """Seconds, however the header says it; None where it says nothing that can be read."""
    if not header:
        return None
    try:
        seconds = float(header)
    except ValueError:
        try:
            when = parsedate_to_datetime(header)
        except ValueError:
            return None
        when = when if when.tzinfo else when.replace(tzinfo=UTC)
        seconds = (when - now).total_seconds()
    if math.isnan(seconds):
        return None
    return min(max(seconds, SHORTEST_PAUSE_S), LONGEST_PAUSE_S)
