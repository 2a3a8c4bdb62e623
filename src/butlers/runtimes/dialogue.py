"""A talk with a CLI that is told more than one thing: lines of JSON both ways, and answers by number."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable, Mapping
from typing import Any

from butlers.process.runner import STOP, Command, Ended, OnEvent, Watch, is_stop, run
from butlers.runtimes.base import Limits, NotWarm

ANSWER_S = 10.0  # to one request

Message = Mapping[str, Any]


class Dialogue:
    """Whatever the other side does that it should not is ``NotWarm``, until it has its prompt."""

    def __init__(self, command: Command, read: OnEvent) -> None:
        self._command = command
        self._read = read
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        self._numbers = itertools.count(1)
        self._answers: dict[str, asyncio.Future[Message]] = {}
        self._watch = Watch(Limits())
        self._running: asyncio.Task[Ended] | None = None

    @property
    def alive(self) -> bool:
        return self._running is not None and not self._running.done()

    def begin(self) -> None:
        self._running = asyncio.create_task(
            run(self._command, Limits(), self._read, feed=self._feed, watch=self._watch)
        )
        self._running.add_done_callback(lambda _ended: self._give_up())

    def say(self, message: Message) -> None:
        self._lines.put_nowait(json.dumps(message))

    async def ask(
        self, what: str, compose: Callable[[str], Message], patience_s: float | None = None
    ) -> Message:
        """Its answer; ``compose`` makes the request with the number that the answer will name."""
        number = f"request-{next(self._numbers)}"
        waiting: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._answers[number] = waiting
        try:
            if not self.alive:
                raise NotWarm("it left")
            self.say(compose(number))
            async with asyncio.timeout(patience_s or ANSWER_S):
                await asyncio.wait({waiting})
        except TimeoutError:
            raise NotWarm(f"it did not answer {what}") from None
        finally:
            del self._answers[number]
        if waiting.cancelled():
            raise NotWarm("it left")
        return waiting.result()

    def answered(self, number: object, answer: Message) -> None:
        waiting = self._answers.get(str(number))
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)

    async def tell(self, prompt: Message, limits: Limits) -> Ended:
        """The last thing it is told: from here on the session's limits count. How it ended."""
        assert self._running is not None
        self._watch.limit(limits)
        self._watch.begin()
        self.say(prompt)
        try:
            return await asyncio.shield(self._running)
        except asyncio.CancelledError as cancelled:
            if not is_stop(cancelled):
                raise
            self._running.cancel(STOP)
            return await self._running

    def hang_up(self) -> None:
        """It leaves by itself when its stdin is closed."""
        self._lines.put_nowait(None)

    async def close(self) -> None:
        self.hang_up()
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    async def _feed(self, writer: asyncio.StreamWriter) -> None:
        while (line := await self._lines.get()) is not None:
            writer.write(line.encode() + b"\n")
            await writer.drain()

    def _give_up(self) -> None:
        for waiting in self._answers.values():
            waiting.cancel()
