"""The end of a task, also of one that loses a cancellation."""

from __future__ import annotations

import asyncio
import contextvars
import subprocess
import sys
import threading

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


async def test_ending_no_tasks_is_allowed() -> None:
    await tasks.end()


# -- a thread of its own ---------------------------------------------------------------------------


async def test_work_in_a_thread_gives_its_result_and_its_error() -> None:
    place: contextvars.ContextVar[str] = contextvars.ContextVar("place")
    place.set("here")
    assert await tasks.in_thread(place.get) == "here"
    assert await tasks.in_thread(threading.get_ident) != threading.get_ident()
    with pytest.raises(ZeroDivisionError):
        await tasks.in_thread(lambda: 1 // 0)


@pytest.mark.parametrize("wrong", [StopIteration, SystemExit, KeyboardInterrupt])
async def test_unraisable_exceptions_become_runtime_errors(
    wrong: type[BaseException],
) -> None:
    def work() -> None:
        raise wrong("no")

    with pytest.raises(RuntimeError, match=wrong.__name__):
        await tasks.in_thread(work)


def test_endless_thread_does_not_block_the_loop() -> None:
    """The process below would hang for ever otherwise."""
    program = (
        "import asyncio, threading\n"
        "from butlers.domain.tasks import in_thread\n"
        "async def main():\n"
        "    task = asyncio.create_task(in_thread(threading.Event().wait))\n"
        "    await asyncio.sleep(0)\n"
        "    task.cancel()\n"
        "asyncio.run(main())\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
