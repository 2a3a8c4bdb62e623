"""Time, and identifiers that sort by the time they were made."""

from __future__ import annotations

import os
import threading
import time
from datetime import UTC, datetime
from typing import Protocol
from uuid import UUID


class Clock(Protocol):
    def now(self) -> datetime:
        """Return the current time, timezone-aware, in UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never go backwards, to measure durations."""
        ...


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()


_MILLISECOND = 1_000_000
_lock = threading.Lock()
_last = 0


def uuid7() -> UUID:
    """Return a UUIDv7 (RFC 9562): 48 bits of Unix milliseconds, 12 of their fraction, then randomness.

    The ids of one process sort in the order they were made. PostgreSQL makes them only from version 18 on,
    and our minimum is 15.
    """
    moment = _next_moment()
    value = (moment >> 12 << 80) | (0x7 << 76) | ((moment & 0xFFF) << 64)
    value |= (0x2 << 62) | (int.from_bytes(os.urandom(8), "big") >> 2)
    return UUID(int=value)


def _next_moment() -> int:
    """Return the time in 4096ths of a millisecond, later than any returned before."""
    global _last
    milliseconds, rest = divmod(time.time_ns(), _MILLISECOND)
    moment = milliseconds << 12 | rest * 4096 // _MILLISECOND
    with _lock:
        _last = max(moment, _last + 1)
        return _last
