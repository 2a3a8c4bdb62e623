"""The fake model in a loop of its own, for tests that talk to other processes and wait for them."""

from __future__ import annotations

import asyncio
import threading
from typing import Self

from support.fake_model.server import FakeModel, fake_model


class ModelThread:
    model: FakeModel

    def __init__(self) -> None:
        self._started, self._stop = threading.Event(), asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    def __enter__(self) -> Self:
        self._thread.start()
        self._started.wait()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def release(self) -> None:
        """Let those that hang be answered, and never hang again."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self.model.release)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        async with fake_model() as self.model:
            self._started.set()
            await self._stop.wait()
