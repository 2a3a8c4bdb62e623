"""Asyncio helpers: end tasks reliably, and run blocking work in a thread that can be abandoned."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

AGAIN_S = 2.0  # more than a task needs for its clean-up

T = TypeVar("T")


async def end(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks and wait until they have ended.

    A cancellation can be lost when the awaited event arrives, or fails, at that very moment. A task that
    still runs is therefore cancelled again.
    """
    left = set(tasks)
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=AGAIN_S)


async def in_thread(work: Callable[[], T]) -> T:
    """Run foreign code that may never return in a daemon thread.

    Cancelling the caller abandons the thread; a thread of the loop's pool would keep the process from
    ending.
    """
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
        except BaseException as error:  # noqa: BLE001  (handed to the caller)
            settle, what = over.set_exception, _raisable(error)
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(tell, settle, what)

    threading.Thread(target=run, daemon=True).start()
    return await over


def _raisable(error: BaseException) -> Exception:
    """Wrap StopIteration, which a coroutine cannot raise, and exits, which the work may not request."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    return RuntimeError(repr(error))
