"""Maps an HTTP error response to a delivery error: refused, busy, unavailable, failed or uncertain."""

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

MAX_PAUSE_S = 3600.0
MIN_PAUSE_S = 1.0

# Answers of a gateway, which does not know what the server behind it did.
_GATEWAY_ERRORS = frozenset({502, 504})
# With Retry-After the server has rejected the request. Without it the request may have been processed: a
# server may give up halfway, and a gateway may time out.
_TRY_LATER = frozenset({408, 425, 429, 503})
_CONFLICT = 409
_TOO_MANY_REQUESTS = 429
_SERVER_ERRORS = 500


def error_for(
    answer: httpx.Response, text: str, now: datetime, *, repeatable: bool
) -> ChannelError:
    """Return the error for a response other than 2xx.

    ``repeatable``: the receiver accepts one delivery once, so it may be sent again in any case.
    """
    status, host = answer.status_code, answer.request.url.host
    summary = f"{host} answered {status} {answer.reason_phrase}".rstrip()
    pause_s = retry_after(answer.headers.get("retry-after"), now)
    if status in _TRY_LATER and pause_s is not None:
        busy = ChannelBusy(summary, response=text)
        busy.pause_s = pause_s
        return busy
    if status in _TRY_LATER and repeatable:
        kind = ChannelBusy if status == _TOO_MANY_REQUESTS else ChannelUnavailable
        return kind(summary, response=text)
    if status in _TRY_LATER or status in _GATEWAY_ERRORS:
        return DeliveryUncertain(summary, response=text)
    if status == _CONFLICT or status >= _SERVER_ERRORS:
        # The server is processing the delivery already, or failed while it did.
        return (ChannelFailed if repeatable else DeliveryUncertain)(summary, response=text)
    if answer.has_redirect_location:
        return DeliveryRefused(
            summary, hint="redirects are not followed; configure the new address", response=text
        )
    return DeliveryRefused(summary, response=text)


def retry_after(header: str | None, now: datetime) -> float | None:
    """Return the seconds of a Retry-After header, within limits; None if there is none or it is invalid."""
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
    return min(max(seconds, MIN_PAUSE_S), MAX_PAUSE_S)
