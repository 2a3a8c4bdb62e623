"""The background loop: run a piece of work again and again, whatever happens to one run of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import NoReturn

import structlog

from butlers.domain.errors import DatabaseUnavailable

log = structlog.get_logger()


async def repeat(
    work: Callable[[], Awaitable[float | None]],
    name: str,
    *,
    every_s: float,
    first_s: float = 0.0,
    retry_s: float | None = None,
    wake: asyncio.Event | None = None,
    gather_s: float = 0.0,
) -> NoReturn:
    """Run ``work`` until cancelled, every ``every_s`` seconds and whenever ``wake`` is set.

    The first run comes after ``first_s`` seconds, and one that was woken after ``gather_s`` more, so that
    it covers several events. ``work`` may return the seconds until its next run. A failed run is logged
    under ``name``; while the database is unavailable, runs are retried quietly every ``retry_s`` seconds.
    """
    await asyncio.sleep(first_s)
    while True:
        if wake is not None:
            wake.clear()
        pause: float | None = None
        try:
            pause = await work()
        except DatabaseUnavailable:
            pause = retry_s
        except Exception:  # the loop must go on: the next run may succeed
            log.exception("background work failed", work=name)
        pause = every_s if pause is None else pause
        if wake is None:
            await asyncio.sleep(pause)
            continue
        # Not wait_for: before Python 3.12 it can swallow a cancellation that meets the event.
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await wake.wait()
                await asyncio.sleep(gather_s)
