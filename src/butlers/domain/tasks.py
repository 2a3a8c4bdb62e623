"""The end of a task that runs until it is cancelled, and a thread that nobody has to wait for."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

AGAIN_S = 2.0  # more than any of them needs to put its things away

T = TypeVar("T")


async def end(*tasks: asyncio.Task[Any]) -> None:
    """Cancel them and wait until they are gone. A cancellation can be lost: when what is waited for comes
    at that very moment, or fails while it is given up. Whoever lives on is cancelled again."""
    left = set(tasks)
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=AGAIN_S)


async def in_thread(work: Callable[[], T]) -> T:
    """For work of somebody else, which may never end: it is given up with the task, where a thread of the
    loop's own pool would keep the loop, and the process, from ending."""
    loop = asyncio.get_running_loop()
    over: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def tell(settle: Callable[[Any], None], what: object) -> None:
        if not over.done():
            settle(what)

    def run() -> None:
        settle: Callable[[Any], None]
        what: object
        try:
            settle, what = over.set_result, context.run(work)
        except BaseException as error:  # noqa: BLE001  (handed to whoever waits for it)
            settle, what = over.set_exception, _raisable(error)
        with suppress(RuntimeError):  # the loop is closed, and nobody is left to be told
            loop.call_soon_threadsafe(tell, settle, what)

    threading.Thread(target=run, daemon=True).start()
    return await over


def _raisable(error: BaseException) -> Exception:
    """A coroutine can not raise the end of an iteration, and an exit is not the work's to ask for."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    return RuntimeError(repr(error))
