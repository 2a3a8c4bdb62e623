"""Talk to a CLI in lines of JSON, with answers that name their request. Used for warm processes."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from butlers.process.runner import (
    STOP,
    EventProcess,
    OnEvent,
    ProcessCommand,
    ProcessEnd,
    TimeLimits,
    is_stop,
)
from butlers.process.sandbox import loopback_ports
from butlers.runtimes.base import NotWarm

ANSWER_S = 10.0  # to one request

Message = Mapping[str, Any]


class Dialogue:
    """Raise ``NotWarm`` for anything that goes wrong before the prompt has been sent."""

    def __init__(self, command: ProcessCommand, read: OnEvent) -> None:
        self._process = EventProcess(replace(command, stdin=b""), read)
        self._numbers = itertools.count(1)
        self._answers: dict[str, asyncio.Future[Message]] = {}
        self._running: asyncio.Task[ProcessEnd] | None = None

    @property
    def alive(self) -> bool:
        return self._running is not None and not self._running.done()

    def begin(self) -> None:
        self._running = asyncio.create_task(self._process.run())
        self._running.add_done_callback(lambda _ended: self._give_up())

    def say(self, message: Message) -> None:
        self._process.write(json.dumps(message).encode() + b"\n")

    async def ask(
        self, what: str, compose: Callable[[str], Message], timeout_s: float | None = None
    ) -> Message:
        """Return the answer to the request that ``compose`` makes with the given number."""
        number = f"request-{next(self._numbers)}"
        waiting: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._answers[number] = waiting
        try:
            if not self.alive:
                raise NotWarm("the process exited")
            self.say(compose(number))
            async with asyncio.timeout(timeout_s or ANSWER_S):
                await asyncio.wait({waiting})
        except TimeoutError:
            raise NotWarm(f"the process did not answer {what}") from None
        finally:
            del self._answers[number]
        if waiting.cancelled():
            raise NotWarm("the process exited")
        return waiting.result()

    def answered(self, number: object, answer: Message) -> None:
        waiting = self._answers.get(str(number))
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)

    async def tell(self, prompt: Message, limits: TimeLimits) -> ProcessEnd:
        """Send the prompt and wait for the end of the process. The session's limits count from here."""
        assert self._running is not None
        self._process.limit(limits)
        self.say(prompt)
        try:
            return await asyncio.shield(self._running)
        except asyncio.CancelledError as cancelled:
            if not is_stop(cancelled):
                raise
            self._running.cancel(STOP)
            return await self._running

    async def reach(self, url: str) -> None:
        """Let a process in a sandbox reach the server at this address."""
        for port in loopback_ports(url) or ():
            await self._process.open_port(port)

    def hang_up(self) -> None:
        """Close its stdin, at which the CLI exits."""
        self._process.close_stdin()

    async def close(self) -> None:
        self.hang_up()
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    def _give_up(self) -> None:
        for waiting in self._answers.values():
            waiting.cancel()
