"""The background loop: it survives failures, and runs early when it is woken."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from structlog.testing import capture_logs

from butlers.domain.errors import DatabaseUnavailable
from butlers.queue.loops import repeat

NEVER_S = 3600.0


async def run(work: Callable[[], Awaitable[float | None]], **options: Any) -> None:
    """Run the loop until ``work`` cancels it."""
    task = asyncio.create_task(repeat(work, "work", **options))
    with suppress(asyncio.CancelledError):
        async with asyncio.timeout(30):
            await task


def stop_after(runs: int, outcomes: list[Exception | float | None]) -> Any:
    done: list[int] = []

    async def work() -> float | None:
        done.append(len(done))
        if len(done) == runs:
            raise asyncio.CancelledError
        outcome = outcomes[len(done) - 1]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    return work, done


async def test_failed_run_is_logged_and_the_loop_continues() -> None:
    work, done = stop_after(3, [ValueError("broken"), None])
    with capture_logs() as logs:
        await run(work, every_s=0)
    assert len(done) == 3
    assert [(entry["event"], entry["work"]) for entry in logs] == [
        ("background work failed", "work")
    ]


async def test_unavailable_database_is_retried_quietly() -> None:
    work, done = stop_after(2, [DatabaseUnavailable()])
    with capture_logs() as logs:
        await run(work, every_s=NEVER_S, retry_s=0)
    assert (len(done), logs) == (2, [])


async def test_work_may_choose_its_next_run() -> None:
    work, done = stop_after(2, [0.0])
    await run(work, every_s=NEVER_S)
    assert len(done) == 2


async def test_event_wakes_the_loop() -> None:
    wake = asyncio.Event()
    work, done = stop_after(2, [None])
    asyncio.get_running_loop().call_later(0.05, wake.set)
    await run(work, every_s=NEVER_S, wake=wake, gather_s=0.01)
    assert len(done) == 2
