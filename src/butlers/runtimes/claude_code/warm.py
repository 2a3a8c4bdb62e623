"""Claude Code, booted before its prompt is known.

With its stdin held open the CLI boots, connects to the butler and lists the tools, and can be asked by
control requests whether it has. The system prompt is sent with the prompt: the first ``initialize`` sets
it. Whatever this protocol does that it should not, the process is given up, and a cold one thinks instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from butlers.domain.session import SessionResult
from butlers.process.runner import Event, ProcessCommand, TimeLimits
from butlers.runtimes.base import McpServer, NotWarm
from butlers.runtimes.claude_code.command import described, plain
from butlers.runtimes.claude_code.transcript import CONNECTED, ClaudeTranscript
from butlers.runtimes.dialogue import Dialogue
from butlers.runtimes.shapes import mapping, mappings

BOOT_S = 30.0
POLL_S = 0.05
DIALOGUE = ("--input-format", "stream-json")


class WarmClaude:
    def __init__(self, command: ProcessCommand, butler: str) -> None:
        self._butler = butler
        self._transcript = ClaudeTranscript(butler)
        spoken_to = replace(command, argv=(*command.argv, *DIALOGUE))
        self._dialogue = Dialogue(spoken_to, self._read)
        self._asked = False

    @property
    def alive(self) -> bool:
        return self._dialogue.alive

    async def boot(self, expected: str | None = None) -> None:
        self._dialogue.begin()
        try:
            async with asyncio.timeout(BOOT_S):
                while (status := await self._status(BOOT_S)) != CONNECTED:
                    if status == "failed":
                        raise NotWarm(f"it did not reach {self._butler}")
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            raise NotWarm(f"it was not ready within {BOOT_S:g} s") from None

    async def ask(self, prompt: str, system_prompt: str, limits: TimeLimits) -> SessionResult:
        if not self.alive or self._asked:
            raise NotWarm("it is gone")
        # From the first initialize on there is no other system prompt: so this comes with the prompt.
        await self._control("initialize", systemPrompt=[system_prompt])
        self._asked = True
        message = {"role": "user", "content": plain(prompt)}
        said = {"type": "user", "message": message, "parent_tool_use_id": None}
        try:
            return self._transcript.result(await self._dialogue.tell(said, limits))
        finally:
            await self.close()

    async def close(self) -> None:
        await self._dialogue.close()

    def _read(self, event: Event) -> bool:
        if event.get("type") == "control_response":
            answer = mapping(event.get("response"))
            self._dialogue.answered(answer.get("request_id"), answer)
            return False
        last = self._transcript.read(event)
        if last:
            self._dialogue.hang_up()
        return last

    async def _status(self, patience_s: float | None = None) -> str | None:
        answer = await self._control("mcp_status", patience_s=patience_s)
        for server in mappings(answer.get("mcpServers")):
            if server.get("name") == self._butler:
                return str(server.get("status"))
        return None

    async def _control(
        self, subtype: str, *, patience_s: float | None = None, **more: Any
    ) -> Mapping[str, Any]:
        request = {"subtype": subtype, **more}
        answer = await self._dialogue.ask(
            subtype,
            lambda number: {"type": "control_request", "request_id": number, "request": request},
            patience_s,
        )
        if answer.get("subtype") != "success":
            raise NotWarm(f"it refused {subtype}: {answer.get('error')}")
        return mapping(answer.get("response"))


class BlankClaude(WarmClaude):
    """One that knows no butler while it waits, and no token: it is told with the message."""

    def __init__(self, command: ProcessCommand) -> None:
        super().__init__(command, butler="")

    async def boot(self, expected: str | None = None) -> None:
        self._dialogue.begin()
        await self._control("mcp_status", patience_s=BOOT_S)

    async def meet(self, mcp_servers: Mapping[str, McpServer]) -> None:
        (self._butler,) = mcp_servers
        self._transcript = ClaudeTranscript(self._butler)
        await self._control("mcp_set_servers", servers=described(mcp_servers))
        if await self._status() != CONNECTED:
            raise NotWarm(f"it did not reach {self._butler}")
