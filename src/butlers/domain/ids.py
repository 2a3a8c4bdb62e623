"""Identifiers that sort by the time they were made."""

from __future__ import annotations

import os
import time
from uuid import UUID


def uuid7() -> UUID:
    """A UUIDv7 (RFC 9562): 48 bits of Unix milliseconds, then randomness. Made here because
    PostgreSQL can only from version 18 on, and 15 is our minimum."""
    milliseconds = time.time_ns() // 1_000_000
    value = (milliseconds << 80) | int.from_bytes(os.urandom(10), "big")
    value = (value & ~(0xF << 76)) | (0x7 << 76)
    value = (value & ~(0x3 << 62)) | (0x2 << 62)
    return UUID(int=value)
