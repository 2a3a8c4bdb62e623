"""Identifiers that sort by the time they were made."""

from __future__ import annotations

import os
import threading
import time
from uuid import UUID

_MILLISECOND = 1_000_000
_lock = threading.Lock()
_last = 0


def uuid7() -> UUID:
    """A UUIDv7 (RFC 9562): 48 bits of Unix milliseconds, 12 of their fraction, then randomness. Those of
    one process sort in the order they were made. PostgreSQL can make them only from version 18 on, and
    15 is our minimum."""
    moment = _next_moment()
    value = (moment >> 12 << 80) | (0x7 << 76) | ((moment & 0xFFF) << 64)
    value |= (0x2 << 62) | (int.from_bytes(os.urandom(8), "big") >> 2)
    return UUID(int=value)


def _next_moment() -> int:
    """Now in 4096ths of a millisecond, and later than any before."""
    global _last
    milliseconds, rest = divmod(time.time_ns(), _MILLISECOND)
    moment = milliseconds << 12 | rest * 4096 // _MILLISECOND
    with _lock:
        _last = max(moment, _last + 1)
        return _last
