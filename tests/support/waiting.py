"""Wait for a condition instead of a fixed time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

PATIENCE_S = 60.0
T = TypeVar("T")


async def until(what: str, condition: Callable[[], T | Awaitable[T | None] | None]) -> T:
    """Wait for a condition, not for seconds; the limit only ends a test that hangs."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        answer = condition()
        found = await answer if isinstance(answer, Awaitable) else answer
        if found:
            return found
        await asyncio.sleep(0.005)
    raise AssertionError(f"waited in vain for: {what}")
