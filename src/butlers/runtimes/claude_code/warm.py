"""Claude Code, booted before its prompt is known.

With its stdin held open the CLI boots, connects to the butler and lists the tools, and can be asked by
control requests whether it has. The system prompt is sent with the prompt: the first ``initialize`` sets
it. Whatever this protocol does that it should not, the process is given up, and a cold one thinks instead.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from butlers.domain.session import SessionResult
from butlers.runtimes.base import Limits, NotWarm
from butlers.runtimes.claude_code.transcript import CONNECTED, ClaudeTranscript
from butlers.runtimes.process import Command, Ended, Event, Watch, run
from butlers.runtimes.shapes import mapping, mappings

BOOT_S = 30.0
ANSWER_S = 10.0  # to a control request
POLL_S = 0.05
DIALOGUE = ("--input-format", "stream-json")


class WarmClaude:
    def __init__(self, command: Command, butler: str) -> None:
        self._command = replace(command, argv=(*command.argv, *DIALOGUE))
        self._butler = butler
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        self._answers: dict[str, asyncio.Future[Mapping[str, Any]]] = {}
        self._numbers = itertools.count(1)
        self._transcript = ClaudeTranscript(butler)
        self._running: asyncio.Task[Ended] | None = None
        self._watch: Watch | None = None
        self._asked = False

    @property
    def alive(self) -> bool:
        return self._running is not None and not self._running.done()

    async def boot(self) -> None:
        self._begin()
        try:
            async with asyncio.timeout(BOOT_S):
                while (status := await self._status()) != CONNECTED:
                    if status == "failed":
                        raise NotWarm(f"it did not reach {self._butler}")
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            raise NotWarm(f"it was not ready within {BOOT_S:g} s") from None

    async def ask(self, prompt: str, system_prompt: str, limits: Limits) -> SessionResult:
        if not self.alive or self._asked:
            raise NotWarm("it is gone")
        assert self._running is not None
        assert self._watch is not None
        # From the first initialize on there is no other system prompt: so this comes with the prompt.
        await self._control("initialize", systemPrompt=[system_prompt])
        self._asked = True
        self._watch.limit(limits)
        self._watch.begin()
        message = {"role": "user", "content": prompt}
        self._say({"type": "user", "message": message, "parent_tool_use_id": None})
        try:
            return self._transcript.result(await asyncio.shield(self._running))
        finally:
            await self.close()

    async def close(self) -> None:
        self._lines.put_nowait(None)
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    def _begin(self) -> None:
        self._watch = Watch(Limits())
        self._running = asyncio.create_task(
            run(self._command, Limits(), self._read, feed=self._feed, watch=self._watch)
        )
        self._running.add_done_callback(lambda _ended: self._give_up())

    async def _feed(self, writer: asyncio.StreamWriter) -> None:
        while (line := await self._lines.get()) is not None:
            writer.write(line.encode() + b"\n")
            await writer.drain()

    def _say(self, message: Mapping[str, Any]) -> None:
        self._lines.put_nowait(json.dumps(message))

    def _read(self, event: Event) -> bool:
        if event.get("type") == "control_response":
            answer = mapping(event.get("response"))
            waiting = self._answers.pop(str(answer.get("request_id")), None)
            if waiting is not None and not waiting.done():
                waiting.set_result(answer)
            return False
        last = self._transcript.read(event)
        if last:
            self._lines.put_nowait(None)  # it leaves when its stdin is closed
        return last

    def _give_up(self) -> None:
        for waiting in self._answers.values():
            if not waiting.done():
                waiting.cancel()

    async def _status(self) -> str | None:
        answer = await self._control("mcp_status")
        for server in mappings(answer.get("mcpServers")):
            if server.get("name") == self._butler:
                return str(server.get("status"))
        return None

    async def _control(self, subtype: str, **more: Any) -> Mapping[str, Any]:
        number = f"request-{next(self._numbers)}"
        waiting: asyncio.Future[Mapping[str, Any]] = asyncio.get_running_loop().create_future()
        self._answers[number] = waiting
        request = {"subtype": subtype, **more}
        self._say({"type": "control_request", "request_id": number, "request": request})
        try:
            async with asyncio.timeout(ANSWER_S):
                answer = await self._answer(waiting)
        except TimeoutError:
            raise NotWarm(f"it did not answer {subtype}") from None
        if answer.get("subtype") != "success":
            raise NotWarm(f"it refused {subtype}: {answer.get('error')}")
        return mapping(answer.get("response"))

    async def _answer(self, waiting: asyncio.Future[Mapping[str, Any]]) -> Mapping[str, Any]:
        await asyncio.wait({waiting})
        if waiting.cancelled():
            raise NotWarm("it left")
        return waiting.result()
