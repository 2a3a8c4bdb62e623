"""The end of a task, also of one that loses a cancellation."""

from __future__ import annotations

import asyncio

import pytest

from butlers.domain import tasks


async def test_a_task_that_loses_a_cancellation_ends_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "AGAIN_S", 0.01)
    lost = 0

    async def stubborn() -> None:
        nonlocal lost
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if lost == 2:
                    raise
                lost += 1

    task, quick = (asyncio.create_task(work()) for work in (stubborn, asyncio.Event().wait))
    await asyncio.sleep(0)
    await tasks.end(task, quick)
    assert (task.cancelled(), quick.cancelled(), lost) == (True, True, 2)


async def test_nothing_to_end_is_no_error() -> None:
    await tasks.end()
