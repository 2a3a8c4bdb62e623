"""The end of a task that runs until it is cancelled."""

from __future__ import annotations

import asyncio
from typing import Any

AGAIN_S = 2.0  # more than any of them needs to put its things away


async def end(*tasks: asyncio.Task[Any]) -> None:
    """Cancel them and wait until they are gone. A cancellation can be lost: when what is waited for comes
    at that very moment, or fails while it is given up. Whoever lives on is cancelled again."""
    left = set(tasks)
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=AGAIN_S)
