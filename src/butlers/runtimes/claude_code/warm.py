"""Claude Code as a warm process.

With its stdin held open the CLI boots, connects to the butler and lists its tools; control requests report
whether it has. The system prompt is sent with the prompt, because the first ``initialize`` sets it. If the
protocol does anything unexpected, the process is given up and the session starts cold.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from butlers.domain.session import SessionResult
from butlers.process.runner import Event, ProcessCommand, TimeLimits
from butlers.runtimes.base import McpServer, NotWarm
from butlers.runtimes.claude_code.command import plain
from butlers.runtimes.claude_code.transcript import CONNECTED, ClaudeTranscript
from butlers.runtimes.cli import describe_servers
from butlers.runtimes.dialogue import Dialogue
from butlers.runtimes.formats import mapping, mappings

BOOT_S = 30.0
POLL_S = 0.05
DIALOGUE = ("--input-format", "stream-json")


class WarmClaude:
    def __init__(self, command: ProcessCommand, butler: str | None) -> None:
        """``butler``: the one that it connects to while it boots; None: ``connect`` names it."""
        self._butler = butler
        self._transcript = ClaudeTranscript(butler or "")
        command = replace(command, argv=(*command.argv, *DIALOGUE))
        self._dialogue = Dialogue(command, self._read)
        self._asked = False

    @property
    def alive(self) -> bool:
        return self._dialogue.alive

    async def boot(self, expected: str | None = None) -> None:
        self._dialogue.begin()
        try:
            async with asyncio.timeout(BOOT_S):
                while (status := await self._status(BOOT_S)) != CONNECTED and self._butler:
                    if status == "failed":
                        raise NotWarm(f"the process did not reach {self._butler}")
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            raise NotWarm(f"the process was not ready within {BOOT_S:g} s") from None

    async def connect(self, mcp_servers: Mapping[str, McpServer]) -> None:
        ((self._butler, server),) = mcp_servers.items()
        await self._dialogue.reach(server.url)
        self._transcript = ClaudeTranscript(self._butler)
        servers = describe_servers(mcp_servers)["mcpServers"]
        await self._control("mcp_set_servers", servers=servers)
        if await self._status() != CONNECTED:
            raise NotWarm(f"the process did not reach {self._butler}")

    async def ask(self, prompt: str, system_prompt: str, limits: TimeLimits) -> SessionResult:
        if not self.alive or self._asked:
            raise NotWarm("the process exited")
        # The first initialize sets the system prompt for good, so it is sent with the prompt.
        await self._control("initialize", systemPrompt=[system_prompt])
        self._asked = True
        message = {"role": "user", "content": plain(prompt)}
        turn = {"type": "user", "message": message, "parent_tool_use_id": None}
        try:
            return self._transcript.result(await self._dialogue.tell(turn, limits))
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

    async def _status(self, timeout_s: float | None = None) -> str | None:
        answer = await self._control("mcp_status", timeout_s=timeout_s)
        for server in mappings(answer.get("mcpServers")):
            if server.get("name") == self._butler:
                return str(server.get("status"))
        return None

    async def _control(
        self, subtype: str, *, timeout_s: float | None = None, **more: Any
    ) -> Mapping[str, Any]:
        request = {"subtype": subtype, **more}
        answer = await self._dialogue.ask(
            subtype,
            lambda number: {"type": "control_request", "request_id": number, "request": request},
            timeout_s,
        )
        if answer.get("subtype") != "success":
            raise NotWarm(f"the process refused {subtype}: {answer.get('error')}")
        return mapping(answer.get("response"))
